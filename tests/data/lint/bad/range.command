docker run --gpus device=0-2 pytorch-cuda:v2.6
