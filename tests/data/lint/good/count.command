docker run --gpus 2 pytorch-cuda:v2.6
