docker run --privileged --gpus device=1 pytorch-cuda:v2.6
