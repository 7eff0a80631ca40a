podman run --device nvidia.com/gpu=1 pytorch-cuda:v2.6
