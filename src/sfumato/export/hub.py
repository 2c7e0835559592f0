"""Export a model as a Hugging Face Hub repository: the unchanged model file and its card."""

import filecmp
import shutil
from pathlib import Path

import yaml

from sfumato.export.card import Credits, model_card
from sfumato.models.hub import MODEL_NAME, HubAddress, local_file
from sfumato.models.model_file import is_model, load
from sfumato.models.ownership import Written
from sfumato.system.atomic_files import replace_text, replacing
from sfumato.system.errors import RunError
from sfumato.system.marks import Kind, text_like

__all__ = ["export_hub", "hub_files", "push"]

_CARD = "README.md"
_ABOUT = {"library_name": "sfumato"}
"""The card starts with this."""


def export_hub(source: str | Path, folder: str | Path, credits: Credits, *, address: str = "owner/name") -> Path:
    """Write the content of a repository: `model.safetensors` and `README.md`.

    Args:
        source: Path of the model file; it is first read and checked in full.
        folder: Created if it does not exist.
        credits: Authors and licence.
        address: Owner and name for the card's example.

    Returns:
        The folder.

    Raises:
        ModelFileError: If the source is not a model.
        RunError: If the folder cannot be written.
    """
    folder, model = Path(folder), load(source, device="cpu")
    usage = (
        "```sh\npip install 'sfumato[hub]'\n"
        f"sfumato restore 'hf://{address}' image.tif restored.ome.tif\n```\n\n"
        "or in Python, with the file pinned by its hash:\n\n"
        "```python\nimport sfumato\n\n"
        f'model = sfumato.load("hf://{address}", sha256="{model.sha256}")\n'
        "restored = sfumato.restore(image, model)  # restored.mean, restored.std\n```"
    )
    about = {
        **_ABOUT,
        "license": credits.licence.lower(),
        "pipeline_tag": "image-to-image",
        "tags": ["sfumato", "diffusion", "image-restoration", "uncertainty", model.info.recipe.problem],
    }
    text = f"---\n{yaml.safe_dump(about, sort_keys=False)}---\n\n{model_card(model, credits, usage=usage)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / MODEL_NAME
        file, _ = local_file(source)
        if not (target.exists() and target.samefile(file)):
            size = file.stat().st_size
            with (
                file.open("rb") as held,
                replacing(target, num_bytes=size, untouched="What was there is intact") as new,
            ):
                shutil.copyfileobj(held, new)
        replace_text(folder / _CARD, text, untouched="The model file beside it is written")
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error}; choose another folder, or make room there") from error
    return folder


def hub_files(source: str | Path, folder: Path) -> list[Written]:
    """Files that :func:`export_hub` writes to a folder; a model file that is the source itself is left as it is.

    A model file is recognised as a copy by the card beside it, or by its bytes: it may be the only one of its training.
    """
    file, target = local_file(source)[0], folder / MODEL_NAME
    card = text_like("model card", lambda text: text.startswith(f"---\n{yaml.safe_dump(_ABOUT)}"))

    def is_copy(path: Path) -> bool:
        return is_model(path) and (card.is_ours(folder / _CARD) or filecmp.cmp(path, file, shallow=False))

    is_source = target.exists() and target.samefile(file)
    copy = [] if is_source else [Written(target, Kind("copy of a model", is_copy))]
    return [*copy, Written(folder / _CARD, card)]


def push(folder: str | Path, repository: str, *, private: bool = False) -> str:
    """Upload a folder of :func:`export_hub` in one commit; creates the repository if it does not exist.

    huggingface_hub provides the credentials, from `hf auth login` or HF_TOKEN.

    Args:
        folder: Only its model file and card are uploaded.
        repository: Owner and name.
        private: Whether a repository created here is private.

    Returns:
        The address of the new commit, `hf://owner/name@commit`.

    Raises:
        RunError: If the Hub refuses or cannot be reached.
        ImportError: If huggingface_hub is not installed.
    """
    HubAddress.parse(f"hf://{repository}")
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise ImportError("uploading needs huggingface_hub: pip install 'sfumato[hub]'") from error
    api = HfApi(library_name="sfumato")
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=[MODEL_NAME, _CARD],
            commit_message="Upload a model made with sfumato",
        )
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise RunError(
            f"the Hub did not take {repository}: {str(error).splitlines()[0]:.300}; log in with `hf auth login`, and "
            "check owner, name and network"
        ) from error
    return f"hf://{repository}@{commit.oid}"
