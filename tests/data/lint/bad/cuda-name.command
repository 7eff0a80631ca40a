docker run --gpus '"device=0,1"' -e CUDA_VISIBLE_DEVICES=cuda:1 pytorch-cuda:v2.6
