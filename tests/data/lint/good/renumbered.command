docker run --gpus '"device=1,3"' -e CUDA_VISIBLE_DEVICES=0,1 pytorch-cuda:v2.6
