docker run --rm --gpus all pytorch-cuda:v2.6 python train.py
