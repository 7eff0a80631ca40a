docker run --gpus device=1 -e NVIDIA_VISIBLE_DEVICES=0 pytorch-cuda:v2.6
