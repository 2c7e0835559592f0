"""Rewrite a trained model so that sampling it takes less time, and gives the same up to rounding."""

import torch
from torch import Tensor, nn

from sfumato.diffusion.known import Known
from sfumato.diffusion.model import CVDM
from sfumato.nn.blocks import shallow_copy
from sfumato.nn.fused import FusedUNet, fused

__all__ = ["for_inference"]


def for_inference(model: CVDM) -> CVDM:
    """The model in evaluation mode with its networks rewritten for a CPU; on other devices, the model itself.

    What its noise network makes of the condition is then part of :meth:`~sfumato.diffusion.model.CVDM.read`: it is the
    same in all calls of all samples. Training needs the model itself.

    Example:
        >>> from sfumato import LearnedSchedule
        >>> from sfumato.nn import UNet
        >>> model = CVDM(LearnedSchedule(UNet(1, 1, base=4)), UNet(3, 1, base=4)).eval()
        >>> type(for_inference(model).schedule.network).__name__
        'FusedUNet'
    """
    if any(parameter.device.type != "cpu" for parameter in model.parameters()):
        return model
    result = shallow_copy(model)
    for name, part in model.named_children():
        setattr(result, name, _rewritten(part))
    network, num_called = model.network, 2 * model.target_channels
    if type(model) is CVDM and FusedUNet.fits(network) and network.in_channels > num_called:
        result.network = FusedUNet(network, num_read=network.in_channels - num_called)
        result.__class__ = _ReadsOnce
    return result


def _rewritten(part: nn.Module) -> nn.Module:
    """A network, or a schedule with its network."""
    inner = getattr(part, "network", None)
    if not isinstance(inner, nn.Module):
        return fused(part)
    result = shallow_copy(part)
    result.network = fused(inner)
    return result


class _ReadsOnce(CVDM):
    """A model whose network has a method for what is the same in all calls."""

    network: FusedUNet

    def read(self, condition: Tensor) -> Known:
        """As of the model, except that :attr:`Known.seen` is what the network made of it, on its padded grid."""
        known = super().read(condition)
        return known._replace(seen=self.network.read(known.seen))

    def ask_network(self, noisy: Tensor, gamma: Tensor, seen: Tensor) -> Tensor:
        """As of the model."""
        output: Tensor = self.network(torch.cat([gamma, noisy], dim=1), seen)
        return output.to(noisy.dtype)
