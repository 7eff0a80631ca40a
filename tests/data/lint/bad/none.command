docker run --gpus all -e CUDA_VISIBLE_DEVICES=none pytorch-cuda:v2.6
