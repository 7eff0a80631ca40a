docker run --rm --gpus 1 -e CUDA_VISIBLE_DEVICES=1 pytorch-cuda:v2.6 python train.py
