"""Networks from images to images. They know nothing of diffusion: channels in, channels out, any size."""

from sfumato.nn.sr3 import SR3UNet
from sfumato.nn.unet import UNet

__all__ = ["SR3UNet", "UNet"]
