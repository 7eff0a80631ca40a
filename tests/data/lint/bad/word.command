docker run --gpus two pytorch-cuda:v2.6
