"""Call a network, and say in plain English when its channels are not those it is given."""

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["called", "channels_taken"]

_LAYERS = (nn.Conv2d, nn.Conv3d)


def channels_taken(network: Any) -> int | None:
    """Channels that a network says it takes, or that its first layer has; None if neither is known.

    Example:
        >>> channels_taken(nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 1, 1)))
        3
    """
    declared: int | None = getattr(network, "in_channels", None)
    if declared is not None or not isinstance(network, nn.Module):
        return declared
    return next((layer.in_channels for layer in network.modules() if isinstance(layer, _LAYERS)), None)


def called(network: Any, name: str, images: Tensor, made_of: str, channels: int | None = None) -> Tensor:
    """Call a network on images (B, in, *spatial).

    Args:
        network: Any callable.
        name: What it is called in messages.
        images: Its input.
        made_of: What the channels of its input are.
        channels: Channels of its output, if they are known before.

    Raises:
        ValueError: If it takes or gives another number of channels.
    """
    if torch.compiler.is_compiling():
        return network(images)  # type: ignore[no-any-return]
    given = images.shape[1]
    if getattr(network, "in_channels", given) != given:
        raise ValueError(_told(network, name, given, made_of))
    try:
        output: Tensor = network(images)
    except RuntimeError as error:
        # Only now is it certain: a network may add channels of its own before its first layer.
        if channels_taken(network) in (None, given):
            raise
        raise ValueError(_told(network, name, given, made_of)) from error
    if channels is not None and output.shape[1] != channels:
        raise ValueError(
            f"the {name} ({type(network).__name__}) returns {output.shape[1]} channels and the target has {channels}; "
            f"expected as many; build it with {channels} output channels, or give target_channels"
        )
    return output


def _told(network: Any, name: str, given: int, made_of: str) -> str:
    return (
        f"the {name} ({type(network).__name__}) takes images of {channels_taken(network)} channels and is given "
        f"{given}: {made_of}; expected as many; build it with {given} input channels, or change the condition"
    )
