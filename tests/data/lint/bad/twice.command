docker run --gpus all -e CUDA_VISIBLE_DEVICES=0,0 pytorch-cuda:v2.6
