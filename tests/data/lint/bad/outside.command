docker run --gpus device=1 -e CUDA_VISIBLE_DEVICES=5 pytorch-cuda:v2.6
