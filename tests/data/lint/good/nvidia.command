docker run --runtime nvidia -e NVIDIA_VISIBLE_DEVICES=0,1 pytorch-cuda:v2.6
