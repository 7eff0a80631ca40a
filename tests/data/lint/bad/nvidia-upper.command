docker run --runtime nvidia -e NVIDIA_VISIBLE_DEVICES=ALL pytorch-cuda:v2.6
