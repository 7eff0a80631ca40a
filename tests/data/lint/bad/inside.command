docker run --gpus all pytorch-cuda:v2.6 sh -c 'CUDA_VISIBLE_DEVICES=1 python train.py'
