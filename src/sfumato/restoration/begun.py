"""Check what already exists of a restoration: nothing, a part with its journal, all of it, or something else.

Only the last case is refused, before anything is written. Existing results belong to this restoration if the same
command made them: the same settings, the same model file (by hash) and the same input (by identity).
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

__all__ = ["begin", "begun_output", "check_job", "check_stores", "is_begun", "is_finished"]

_JOB = "job.json"

Note = Callable[[str], None]


def is_finished(restoration: Restoration, note: Note | None = None) -> bool:
    """Whether all outputs of a restoration already exist.

    Args:
        restoration: From :func:`~sfumato.restoration.planning.plan_restoration`.
        note: Called with a message about anything that version 0.1 did not record and that cannot be checked.

    Raises:
        SfumatoError: If something else is in their place: files that do not say how they were made, or a restoration
            with another model, input or settings.
    """
    if (restoration.journal / _JOB).exists():
        check_job(restoration, note)
        if not restoration.is_store or not Journal(restoration.journal, restoration.job.plan.num_tasks).done().all():
            return False
        check_stores(restoration)
        return True
    there = [Path(file) for file in restoration.files if "://" not in file and Path(file).exists()]
    if not there or (restoration.journal / _JOB).exists():  # otherwise another shard has started meanwhile
        return False
    if restoration.is_store:
        raise ImageError(
            f"{there[0]} exists already, but its journal {restoration.journal} does not, so its progress is unknown; "
            "expected a new name; choose one or remove it"
        )
    for output, file in zip(restoration.job.outputs, restoration.files, strict=True):
        if Path(file) in there and not check_origin(Path(file), provenance(restoration, output)) and note is not None:
            note("results of version 0.1 do not record their input; whether it is still the same "
                 "could not be checked")  # fmt: skip
    if missing := [Path(file).name for file in restoration.files if Path(file) not in there]:
        raise ImageError(
            f"{there[0]} was restored differently: without {', '.join(missing)}; choose another place for the output, "
            "or remove it"
        )
    return True


def is_begun(restoration: Restoration) -> bool:
    """Whether there is a journal of this restoration."""
    return (restoration.journal / _JOB).exists()


def begin(restoration: Restoration) -> bool:
    """Write the job to the journal unless that was done before, and return whether it was.

    Raises:
        SfumatoError: If the journal folder cannot be created or contains unrelated files.
    """
    folder = restoration.journal
    if (folder / _JOB).exists():
        return True
    if foreign := foreign_files(folder):
        raise RunError(
            f"{folder} should become the journal but contains {foreign[0].name}; expected a new or empty folder; "
            "choose another one"
        )
    for file in restoration.files:
        check_sidecar(file)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"cannot create {folder}: {error.strerror}; expected a folder to write to; choose another"
        ) from error
    # Not with `durable.replacing`, which would take a file that another host is writing for a leftover.
    storage_at(folder).put({_JOB: restoration.job.to_json().encode()})
    return False


def check_job(restoration: Restoration, note: Note | None = None, *, adopt: bool = False) -> None:
    """Check that the job in the journal is this one.

    Args:
        restoration: A restoration with a journal.
        note: Called if the journal was written by version 0.1, which did not record the input.
        adopt: Add the current input to such a journal, so that it can be compared next time.

    Raises:
        RunError: If its settings differ.
        ReplacedInputError: If its input is a different one.
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
            note(f"{restoration.journal} was started by version 0.1, which did not record the input; "
                 "whether it is still the same could not be checked")  # fmt: skip
        if adopt:
            storage_at(restoration.journal).put({_JOB: restoration.job.with_source_identity(text).encode()})
    elif (before.size, before.digest) != (now.size, now.digest):
        what = f"it has {now.size} bytes, had {before.size}" if before.size != now.size else "its content differs"
        raise ReplacedInputError(
            f"{restoration.job.source} is not the input that {restoration.journal} was started with: {what}; put the "
            "original back, or remove the journal and its output to restore this one"
        )


def begun_output(restoration: Restoration, number: int, *, is_recorded: bool) -> dict[str, object] | None:
    """The metadata of one of the stores if an earlier call created it, otherwise None.

    Args:
        restoration: A restoration that was started.
        number: Index of the output.
        is_recorded: Whether the journal lists finished chunks.

    Raises:
        RunError: If the store was made with other settings, or is missing although the journal lists finished chunks.
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
            f"{output.place} is gone or damaged, and {restoration.journal} lists finished chunks of it ({error}); "
            "put it back, or remove the journal and all outputs to start again"
        ) from error
    if others := differences(told, provenance(restoration, output)):
        raise RunError(f"{output.place} was started differently: {'; '.join(others)}; remove it and its journal")
    return {key: value for key, value in told.items() if key != "notes"}


def check_stores(restoration: Restoration) -> None:
    """Check that all stores are complete: one removed during the work may leave chunks but no image metadata.

    Raises:
        RunError: If one of them is missing, or was made with other settings.
    """
    for number in range(len(restoration.files)):
        begun_output(restoration, number, is_recorded=True)
