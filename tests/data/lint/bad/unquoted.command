docker run --rm --gpus device=0,2 -e CUDA_VISIBLE_DEVICES=0,2 pytorch-cuda:v2.6 python train.py
