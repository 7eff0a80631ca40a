docker run --gpus '"device=1,3"' -e CUDA_VISIBLE_DEVICES=0,1,2,3 pytorch-cuda:v2.6
