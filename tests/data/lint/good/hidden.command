docker run --gpus all -e CUDA_VISIBLE_DEVICES=-1 pytorch-cuda:v2.6
