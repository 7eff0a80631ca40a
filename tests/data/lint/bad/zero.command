docker run --gpus=0 pytorch-cuda:v2.6
