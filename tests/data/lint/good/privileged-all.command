docker run --privileged --gpus all pytorch-cuda:v2.6
