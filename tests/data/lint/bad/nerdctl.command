nerdctl -n k8s.io run --gpus all -e CUDA_VISBLE_DEVICES=0 pytorch-cuda:v2.6
