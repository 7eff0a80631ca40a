docker run -v /dev:/dev -e CUDA_VISIBLE_DEVICES=0 pytorch-cuda:v2.6
