"""What is there already of a restoration: nothing, a part with its journal, all of it, or somebody else's.

Only the last is refused, before anything is written. A part or the whole is this restoration's if the same command made
it: the same settings, the same model file by its hash, and the same input by its identity.
"""

from collections.abc import Callable
from pathlib import Path

from sfumato.data.images.output import OutputImage
from sfumato.data.images.sidecar import check_sidecar
from sfumato.data.images.storage import storage_at
from sfumato.restoration.job import Job
from sfumato.restoration.journal import Journal, foreign_files
from sfumato.restoration.origin import check_origin, differences, provenance
from sfumato.restoration.planning import Restoration
from sfumato.restoration.watch import ReplacedInputError
from sfumato.system.errors import ImageError, RunError, StorageError

__all__ = ["begin", "begun_output", "check_job", "is_finished"]

_JOB = "job.json"

Note = Callable[[str], None]


def is_finished(restoration: Restoration, note: Note | None = None) -> bool:
    """Whether all of a restoration is there already.

    Args:
        restoration: From :func:`~sfumato.restoration.planning.plan_restoration`.
        note: Called with what version 0.1 did not write down, so that it cannot be checked.

    Raises:
        SfumatoError: If something else is there: files that do not say how they were made, or a restoration with
            another model, input or settings.
    """
    if (restoration.journal / _JOB).exists():
        check_job(restoration, note)
        return restoration.is_store and _is_complete(restoration)
    there = [Path(file) for file in restoration.files if "://" not in file and Path(file).exists()]
    if not there or (restoration.journal / _JOB).exists():  # else another shard has begun meanwhile
        return False
    if restoration.is_store:
        raise ImageError(
            f"{there[0]} exists already, and the journal {restoration.journal}, which would tell what is done of it, "
            "does not; expected a new name; choose one or remove it"
        )
    for output, file in zip(restoration.job.outputs, restoration.files, strict=True):
        if Path(file) in there and not check_origin(Path(file), provenance(restoration, output)) and note is not None:
            note("results of version 0.1 do not say from which input they were made; whether it is the same one now "
                 "could not be checked")  # fmt: skip
    if missing := [Path(file).name for file in restoration.files if Path(file) not in there]:
        raise ImageError(
            f"{there[0]} was restored otherwise: without {', '.join(missing)}; choose another place for the output, or "
            "remove it"
        )
    return True


def begin(restoration: Restoration) -> bool:
    """Write the job down, unless that was done before; whether it was.

    Raises:
        SfumatoError: If the folder of the journal cannot be made or holds files of somebody else.
    """
    folder = restoration.journal
    if (folder / _JOB).exists():
        return True
    if foreign := foreign_files(folder):
        raise RunError(
            f"{folder} is to be the journal and holds {foreign[0].name}; expected a folder that is new or empty; name "
            "another one"
        )
    for file in restoration.files:
        check_sidecar(file)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"cannot make {folder}: {error.strerror}; expected a folder to write to; choose another"
        ) from error
    # Not by `durable.replacing`, which would take a file that another host is writing for a leftover.
    storage_at(folder).put({_JOB: restoration.job.to_json().encode()})
    return False


def check_job(restoration: Restoration, note: Note | None = None, *, adopt: bool = False) -> None:
    """Make sure that the job that was begun is this one.

    Args:
        restoration: With a journal.
        note: Called if the journal, of version 0.1, does not say what the input was.
        adopt: Write what the input is now into such a journal, so that the next time it is compared.

    Raises:
        RunError: If it has other settings.
        ReplacedInputError: If the input is another one.
    """
    path = restoration.journal / _JOB
    text = path.read_text(encoding="utf-8")
    if others := restoration.job.differences(text):
        raise RunError(
            f"{restoration.journal} holds another restoration: {'; '.join(others)}; give the settings it was begun "
            "with, or remove it and its output"
        )
    before, now = Job.source_identity_in(text), restoration.job.source_identity
    if before is None:
        if note is not None:
            note(f"{restoration.journal} was begun by version 0.1, which did not write down what the input was; "
                 "whether it is still the same could not be checked")  # fmt: skip
        if adopt:
            storage_at(restoration.journal).put({_JOB: restoration.job.with_source_identity(text).encode()})
    elif (before.size, before.digest) != (now.size, now.digest):
        what = f"it has {now.size} bytes, had {before.size}" if before.size != now.size else "its content differs"
        raise ReplacedInputError(
            f"{restoration.job.source} is not the input that {restoration.journal} was begun with: {what}; put the "
            "former one back, or remove the journal and its output to restore this one"
        )


def begun_output(restoration: Restoration, number: int, *, is_recorded: bool) -> dict[str, object] | None:
    """What one of the stores says of itself if an earlier call made it, else None.

    Args:
        restoration: One that was begun.
        number: Of the output.
        is_recorded: Whether the journal calls chunks done.

    Raises:
        RunError: If it was made otherwise, or is gone though chunks of it are called done.
    """
    output = restoration.job.outputs[number]
    try:
        told = dict(OutputImage.open(output.place).metadata)
    except StorageError:
        raise
    except ImageError as error:
        if not is_recorded:
            return None
        raise RunError(
            f"{output.place} is gone or damaged, and {restoration.journal} says that chunks of it are done ({error}); "
            "put it back, or remove the journal and all outputs to start again"
        ) from error
    if others := differences(told, provenance(restoration, output)):
        raise RunError(f"{output.place} was begun otherwise: {'; '.join(others)}; remove it and its journal")
    return {key: value for key, value in told.items() if key != "notes"}


def _is_complete(restoration: Restoration) -> bool:
    if not Journal(restoration.journal, restoration.job.plan.num_tasks).done().all():
        return False
    for number in range(len(restoration.files)):
        begun_output(restoration, number, is_recorded=True)
    return True
