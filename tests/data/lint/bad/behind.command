docker run -it pytorch-cuda:v2.6 --gpus all
