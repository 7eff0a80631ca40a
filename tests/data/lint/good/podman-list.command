podman run --gpus 0,2 pytorch-cuda:v2.6
