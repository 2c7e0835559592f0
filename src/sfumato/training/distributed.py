"""The processes of a run: one, or as many as torchrun or srun started."""

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sfumato.system.device import usable_device
from sfumato.system.errors import RunError, SfumatoError

__all__ = ["Ranks", "is_first_process"]


def is_first_process() -> bool:
    """Whether this process, of all that torchrun or srun started, is the one that prints results."""
    return os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0"


@dataclass(frozen=True)
class Ranks:
    """This process among all processes of the run.

    Attributes:
        rank: Number of this process, from 0.
        size: Number of processes.
        device: Device of this process.
    """

    rank: int
    size: int
    device: torch.device

    @classmethod
    def join(cls, device: str = "auto") -> "Ranks":
        """Join the other processes that torchrun (or srun, through its variables) started, if any."""
        environment = os.environ
        # Only srun sets the number of tasks of a step; a batch script without it is one process.
        size = int(environment.get("WORLD_SIZE", environment.get("SLURM_STEP_NUM_TASKS", 1)))
        rank = int(environment.get("RANK", environment.get("SLURM_PROCID", 0))) if size > 1 else 0
        local = int(environment.get("LOCAL_RANK", environment.get("SLURM_LOCALID", 0))) if size > 1 else 0
        chosen = usable_device(device)
        if str(chosen) == "cuda":  # a scheduler may show each process only its own GPU
            chosen = torch.device("cuda", local % torch.cuda.device_count())
        if size == 1:
            return cls(0, 1, chosen)
        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in environment]
        if missing:
            raise RunError(
                f"{size} processes were started, but {' and '.join(missing)} do not say where they meet; "
                "export them before srun (the first node's name and a free port), or start with torchrun"
            )
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen)
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", rank=rank, world_size=size)
        return cls(rank, size, chosen)

    def close(self) -> None:
        """Destroy the process group."""
        if self.size > 1:
            dist.destroy_process_group()

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def share(self, total: int) -> range:
        """The part of ``total`` positions that this process handles."""
        if total % self.size:
            raise RunError(
                f"train.batch_size is {total}, which {self.size} processes cannot share equally; "
                f"give a multiple of {self.size}"
            )
        part = total // self.size
        return range(self.rank * part, (self.rank + 1) * part)

    def wrap(self, model: nn.Module, *, in_stages: bool = False) -> nn.Module:
        """Wrap the model so that backward averages gradients over the processes; in stages, some get none."""
        if self.size == 1:
            return model
        places = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=places, find_unused_parameters=in_stages)

    def mean(self, values: Tensor) -> Tensor:
        """Mean over the processes, returned in all of them."""
        if self.size > 1:
            values = values.clone()
            dist.all_reduce(values)
            values = values / self.size
        return values

    def agree(self, flag: bool) -> bool:
        """Whether the value is true in any process, returned in all of them."""
        if self.size == 1:
            return flag
        votes = torch.tensor([float(flag)], device=self.device)
        dist.all_reduce(votes, op=dist.ReduceOp.MAX)
        return bool(votes.item())

    def from_first(self, value: float) -> float:
        """The number held by the first process, returned in all of them."""
        return float(self._text_from_first(repr(value)))

    def by_first(self, work: Callable[[], object]) -> None:
        """Run something that may fail in the first process; if it fails, all processes stop with its message."""
        message, failure = "", None
        if self.is_first:
            try:
                work()
            except SfumatoError as error:
                message, failure = str(error), error
        message = self._text_from_first(message)
        if failure is not None:
            raise failure
        if message:
            raise RunError(message)

    def _text_from_first(self, text: str) -> str:
        """Broadcast as bytes: not every device has float64, and objects would be pickled."""
        if self.size == 1:
            return text
        content = torch.tensor(list(f"{text}\n".encode()), dtype=torch.uint8, device=self.device)
        length = torch.tensor([len(content)], device=self.device)
        dist.broadcast(length, src=0)
        if not self.is_first:
            content = content.new_zeros(int(length.item()))
        dist.broadcast(content, src=0)
        return bytes(content.tolist()).decode()[:-1]

    def wait(self) -> None:
        """Wait until all processes get here."""
        if self.size > 1:
            dist.barrier()
