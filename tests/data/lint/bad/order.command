docker run --gpus all -e CUDA_VISIBLE_DEVICES=2 pytorch-cuda:v2.6
