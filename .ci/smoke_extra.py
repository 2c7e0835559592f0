"""One call into what each extra is for, with the wheel that is installed: `python smoke_extra.py EXTRA`."""

import os
import sys
from pathlib import Path

import numpy as np
import torch

import sfumato.models.model_file
from sfumato.data.normalize import Normalization
from sfumato.models.build import build_model
from sfumato.models.recipe import parse


def model() -> Path:
    """A model file of untrained weights."""
    recipe = parse("model: {base: 2, rate_base: 2, num_scales: 1}\nsample: {steps: 2}")
    same = Normalization((0.0,), (1.0,))
    info = sfumato.models.model_file.ModelInfo(recipe, 1, 1, same, same, {}, {}, factor=(1, 1))
    sfumato.models.model_file.save_model("model.safetensors", build_model(recipe.model, 1, 1).state_dict(), info)
    return Path("model.safetensors")


def evaluate() -> None:
    from sfumato.figures.plotting import new_figure
    from sfumato.statistics.metrics import ssim

    new_figure(2, 2).savefig("figure.png")
    image = torch.rand(1, 1, 32, 32)
    assert float(ssim(image, image, data_range=1.0)) > 0.999


def train() -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter("log") as writer:
        writer.add_scalar("loss", 1.0, 0)


def cluster() -> None:
    from distributed import Client, LocalCluster

    # Inside this process, so that nothing listens.
    with LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as local, Client(local) as client:
        assert client.submit(sum, [1, 2]).result() == 3
    import dask_jobqueue  # noqa: F401


def remote() -> None:
    import fsspec
    import s3fs  # noqa: F401

    fsspec.filesystem("memory").pipe("/x", b"1")


def hub() -> None:
    from sfumato.system.errors import ModelFileError

    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        sfumato.load("hf://nobody/nothing")
    except ModelFileError:
        return
    raise AssertionError("a model that is nowhere was loaded")


def onnx() -> None:
    from sfumato.export.networks import export_networks

    assert max(export_networks(sfumato.load(model()), "networks").values()) < 1e-4


def bioimageio() -> None:
    from sfumato.export.bioimageio import export_bioimageio
    from sfumato.export.card import Credits

    export_bioimageio(sfumato.load(model()), "package.zip", Credits("CC0-1.0", ("smoke test",)), num_samples=2)


def main() -> None:
    torch.set_num_threads(1)
    assert np.isfinite(sfumato.restore(np.zeros((8, 8)), sfumato.load(model()), num_samples=2).mean).all()
    globals()[sys.argv[1]]()


if __name__ == "__main__":
    main()
