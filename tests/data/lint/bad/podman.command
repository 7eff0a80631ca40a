podman run --device nvidia.com/gpu=1 --device nvidia.com/gpu=3 -ite CUDA_VISIBLE_DEVICES=3,1 pytorch-cuda:v2.6
