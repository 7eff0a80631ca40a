FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04
CMD CUDA_VISIBLE_DEVICES=0 python3 train.py
