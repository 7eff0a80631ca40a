docker run --gpus device=0 trainer --gpus 1
