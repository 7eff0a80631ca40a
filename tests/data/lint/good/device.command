docker run --gpus device=1 pytorch-cuda:v2.6
