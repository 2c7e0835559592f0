"""Train models: the training loop, its data, checkpoints and processes."""
