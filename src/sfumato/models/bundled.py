"""Find the model files that come with the package."""

from pathlib import Path

__all__ = ["bundled_models", "demo_model"]


def bundled_models() -> list[Path]:
    """Return the paths of all bundled model files, sorted by name."""
    return sorted(Path(__file__).parent.glob("*.safetensors"))


def demo_model() -> Path:
    """Return the path of the model file of the simulated microscope, used by the demo."""
    return Path(__file__).with_name("microscopy.safetensors")
