"""Run by the environment of CAREamics: `care_peer.py train FOLDER SECONDS` or `care_peer.py restore FOLDER`.

The second restores `input.npy` into `output.npy` for every line that it is sent, and answers with the seconds it took.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from careamics import CAREamist
from careamics.config import create_care_config
from lightning.pytorch import Callback, Trainer

STEPS = 200
"""Of an epoch."""
MOST_EPOCHS = 10_000
"""Never reached: processor seconds end a training."""
ANSWER = "restored in"
"""Begins the line of an answer; the package prints lines of its own."""

torch.set_num_threads(1)


def configured(channels: int) -> Any:
    several: dict[str, Any] = {"axes": "SYX"}
    if channels > 1:
        several = {"axes": "SCYX", "n_channels_in": channels, "n_channels_out": 1}
    return create_care_config(
        experiment_name="care",
        data_type="array",
        patch_size=[64, 64],
        batch_size=8,
        num_epochs=MOST_EPOCHS,
        num_steps=STEPS,
        **several,
    )


class StopInTime(Callback):  # type: ignore[misc]  # the package is in another environment
    """Ends a training after the epoch in which its seconds run out; no learning rate depends on its length."""

    def __init__(self, seconds: float) -> None:
        self.until = time.process_time() + seconds

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Called by the package after each epoch."""
        trainer.should_stop = time.process_time() >= self.until


def learn(folder: Path, pairs: dict[str, Any], seconds: float) -> float:
    """Train for so many processor seconds, and return how many it took."""
    channels = pairs["train_condition"].shape[1]
    shaped = {name: array[:, 0] if channels == 1 else array for name, array in pairs.items()}
    started = time.process_time()
    care = CAREamist(
        configured(channels),
        work_dir=folder / "care",
        callbacks=[StopInTime(seconds)],
        enable_progress_bar=False,
    )
    care.train(
        train_data=shaped["train_condition"],
        train_data_target=shaped["train_target"],
        val_data=shaped["validation_condition"],
        val_data_target=shaped["validation_target"],
    )
    return time.process_time() - started


def main() -> None:
    folder = Path(sys.argv[2])
    if sys.argv[1] == "train":
        seconds = learn(folder, dict(np.load(folder / "pairs.npz")), float(sys.argv[3]))
        (folder / "trained.json").write_text(json.dumps({"seconds": seconds}))
        return
    newest = sorted((folder / "care").rglob("*last*.ckpt"), key=lambda path: path.stat().st_mtime)[-1]
    care = CAREamist(checkpoint_path=newest, work_dir=folder / "care", enable_progress_bar=False)
    for _ in sys.stdin:
        image = np.load(folder / "input.npy")
        several = image.shape[1] > 1
        started = time.process_time()
        found = care.predict(image if several else image[:, 0], axes="SCYX" if several else "SYX")[0]
        seconds = time.process_time() - started
        np.save(folder / "output.npy", np.asarray(found).reshape(1, *image.shape[2:]))
        print(ANSWER, seconds, flush=True)


main()
