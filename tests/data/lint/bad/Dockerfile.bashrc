FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04
RUN echo "export CUDA_VISIBLE_DEVICES=0" >> ~/.bashrc
