"""The training loop, its data, its checkpoints and its ranks."""
