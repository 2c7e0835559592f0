"""Settings of all tests."""

import torch

# Test tensors are small: threads gain nothing on them, lose much on a busy machine, and reorder sums.
torch.set_num_threads(1)
