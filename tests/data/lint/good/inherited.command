docker run --gpus all -e CUDA_VISIBLE_DEVICES pytorch-cuda:v2.6
