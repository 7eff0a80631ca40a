docker run --rm --gpus device=GPU-a1200000,GPU-a3200000 pytorch-cuda:v2.6
