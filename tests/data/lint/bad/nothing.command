docker run -e CUDA_VISIBLE_DEVICES=0 pytorch-cuda:v2.6 python train.py
