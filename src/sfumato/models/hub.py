"""Resolve addresses such as `hf://owner/name` to model files on the Hugging Face Hub."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sfumato.system.errors import ModelFileError

__all__ = ["MODEL_NAME", "HubAddress", "check_hash", "is_address", "local_file"]

MODEL_NAME = "model.safetensors"

_PART = r"[A-Za-z0-9][\w.-]*"
# A pathlib.Path, which command lines make of every argument, has one slash where the address had two.
_ADDRESS = re.compile(
    rf"hf:/{{1,2}}(?P<repository>{_PART}/{_PART})(?:/(?P<file>[\w./-]+))?"
    rf"(?:@(?P<revision>[\w./-]+))?(?:#sha256=(?P<sha256>[0-9a-fA-F]{{64}}))?"
)


@dataclass(frozen=True)
class HubAddress:
    """An address `hf://owner/name`, optionally with `/file`, `@revision` and `#sha256=...`.

    Attributes:
        repository: Owner and name.
        file: Path in the repository.
        revision: Branch, tag or commit; a commit pins the file.
        sha256: SHA-256 of the file, if the address has it.

    Example:
        >>> HubAddress.parse("hf://lab/denoiser@v1").revision
        'v1'
    """

    repository: str
    file: str = MODEL_NAME
    revision: str | None = None
    sha256: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an address.

        Raises:
            ModelFileError: If the address is invalid.
        """
        found = _ADDRESS.fullmatch(text)
        if found is None:
            raise ModelFileError(
                f"{text} is not an address on the Hub; expected hf://owner/name, optionally followed by /file, "
                "@revision and #sha256= with 64 digits"
            )
        return cls(**{name: value for name, value in found.groupdict().items() if value is not None})

    def fetch(self) -> Path:
        """Return the file in the local cache, downloading it first if necessary.

        With `HF_HUB_OFFLINE=1` only the cache is searched.

        Raises:
            ModelFileError: If the file is neither in the cache nor on the Hub.
            ImportError: If huggingface_hub is not installed.
        """
        try:
            from huggingface_hub import hf_hub_download
            from huggingface_hub.errors import HfHubHTTPError
        except ImportError as error:
            raise ImportError("models on the Hub need huggingface_hub: pip install 'sfumato[hub]'") from error
        try:
            return Path(hf_hub_download(self.repository, self.file, revision=self.revision))
        except (HfHubHTTPError, OSError, ValueError) as error:
            raise ModelFileError(
                f"cannot get {self.file} of {self.repository} at {self.revision or 'main'} from the Hub: "
                f"{str(error).splitlines()[0]:.300}; check owner, name, revision and network, or fetch it once where "
                "there is a network and use the same cache (HF_HOME)"
            ) from error


def local_file(path: str | Path) -> tuple[Path, str | None]:
    """Return the file that a path or an address stands for, and the SHA-256 that the address requires, if any."""
    if not is_address(path):
        return Path(path), None
    address = HubAddress.parse(_with_slashes(path))
    return address.fetch(), address.sha256


def is_address(path: str | Path) -> bool:
    """Whether this is an address on the Hub rather than a path.

    Example:
        >>> is_address("hf://lab/denoiser"), is_address("run/model.safetensors")
        (True, False)
    """
    return _with_slashes(path).startswith("hf:/")


def _with_slashes(path: str | Path) -> str:
    return str(path).replace("\\", "/")


def check_hash(path: str | Path, found: str, *wanted: str | None) -> None:
    """Check the SHA-256 of a file against the required ones.

    Raises:
        ModelFileError: If one differs.
    """
    for hash_ in wanted:
        if hash_ is not None and hash_.lower() != found:
            raise ModelFileError(
                f"{path} has the SHA-256 {found}, expected {hash_:.80}: it is a different file; "
                "pin a revision (@commit), or ask where you got the hash"
            )
