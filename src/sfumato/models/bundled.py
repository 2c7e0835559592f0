"""Where the model files that come with the package are."""

from pathlib import Path

__all__ = ["bundled_models", "demo_model"]


def bundled_models() -> list[Path]:
    """All of them, by name."""
    return sorted(Path(__file__).parent.glob("*.safetensors"))


def demo_model() -> Path:
    """That of the simulated microscope."""
    return Path(__file__).with_name("microscopy.safetensors")
