docker run --gpus device=GPU-4cf8db2d -e CUDA_VISIBLE_DEVICES=0 pytorch-cuda:v2.6
