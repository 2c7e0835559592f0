"""`sfumato restore`."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from sfumato.cli import arguments
from sfumato.cli.messages import say, say_device
from sfumato.cli.settings import choice_of
from sfumato.system.errors import RecipeError

if TYPE_CHECKING:
    from sfumato.restoration.engines import Engine
    from sfumato.restoration.layout import Halo
    from sfumato.restoration.planning import Restoration, Settings
    from sfumato.restoration.run import Progress

__all__ = ["restore"]

_UNDRAWN = "; no samples were drawn"


def restore(
    model: arguments.ModelFile,
    source: Annotated[
        str, Argument(metavar="INPUT", help="Image, address of a store, or folder of images, with subfolders.")
    ],
    output: Annotated[
        str,
        Argument(metavar="OUTPUT", help="File for the mean (.zarr, .tif, .png, .npy or .mrc), or a folder."),
    ],
    samples: Annotated[
        int | None,
        Option(
            help="Number of samples; their spread is the uncertainty and, for a model without a mean network, their "
            "mean the result; by default as calibrated, or 16."
        ),
    ] = None,
    steps: Annotated[
        int | None, Option(help="Network calls per sample; by default as calibrated, or the recipe's.")
    ] = None,
    fast: Annotated[
        bool,
        Option(
            "--fast",
            help="Draw no samples: mean, standard deviation and, after `sfumato calibrate --fast`, the interval by one "
            "read of the image. For models with mean and scale networks, as the presets train.",
        ),
    ] = False,
    seed: Annotated[int, Option(help="The same seed gives the same result.")] = 0,
    quantiles: Annotated[
        list[float] | None, Option("--quantile", help="Also write this quantile, such as 0.05; may be repeated.")
    ] = None,
    keep_samples: Annotated[bool, Option(help="Also write every sample.")] = False,
    uncertainty: Annotated[
        Literal["samples", "schedule"],
        Option(
            help="samples: their standard deviation; schedule: a relative hint computed in one pass, for which "
            "--samples 1 is enough. In the models measured so far, that hint was a poor guide to the standard "
            "deviation and to the error."
        ),
    ] = "samples",
    axes: Annotated[
        str | None, Option(help="Axes of the input, letters of STCZYX, if the file does not name them.")
    ] = None,
    channels: arguments.Channels = None,
    scene: arguments.Scene = None,
    times: arguments.Times = None,
    format: Annotated[
        str | None,
        Option(help="If INPUT is a folder: format of the outputs, such as .tif; by default each input's own."),
    ] = None,
    pass_through: Annotated[
        bool, Option("--pass-through", help="Copy the other channels of INPUT untouched to the file of the mean.")
    ] = False,
    dtype: Annotated[
        Literal["float32", "uint16"],
        Option(
            help="Type of the pixels in .tif, .npy and .mrc files. uint16 takes half the space of float32: whole "
            "numbers with a scale that is noted in each file and printed."
        ),
    ] = "float32",
    ome_zarr: Annotated[Literal["0.4", "0.5"], Option(help="Version of OME-Zarr to write.")] = "0.5",
    picture: Annotated[Path | None, Option(help="PNG to draw: measured, restored, uncertainty.")] = None,
    on_target_grid: Annotated[bool, Option(help="The input was already upsampled to the targets' grid.")] = False,
    preview: Annotated[Path | None, Option(help="Restore only the middle, into this PNG, and exit.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Estimate the cost and exit.")] = False,
    verify: Annotated[bool, Option("--verify", help="Compare a restored store with its journal and exit.")] = False,
    workers: Annotated[int | None, Option(help="Number of processes to start on this machine.")] = None,
    scheduler: Annotated[
        str | None, Option(help="Address of a running Dask scheduler, such as tls://node:8786.")
    ] = None,
    tls: Annotated[
        tuple[Path, Path, Path] | None,
        Option(help="Authority, certificate and key (PEM) for the scheduler.", metavar="CA CERT KEY"),
    ] = None,
    shard: Annotated[str | None, Option(help="i/n: run the i-th of n jobs without a scheduler, from 0.")] = None,
    chunk: Annotated[int | None, Option(help="Side in pixels of a chunk; each task restores one chunk.")] = None,
    halo: Annotated[
        str | None,
        Option(
            metavar="PIXELS",
            help="Pixels around a chunk that the networks also see; reach: all that one call looks at.",
        ),
    ] = None,
    tile: Annotated[int | None, Option(help="Side in pixels of what the networks see at once.")] = None,
    batch: Annotated[int | None, Option(help="Samples that go through the network together.")] = None,
    threads: Annotated[
        int | None, Option(help="CPU threads per process; by default 1 with --workers, otherwise all cores.")
    ] = None,
    journal: Annotated[
        Path | None,
        Option(help="Folder that records finished chunks, for resuming; by default next to the output."),
    ] = None,
    device: arguments.Device = "auto",
) -> None:
    """Restore an image of any size, with its uncertainty. If interrupted, rerun the command to resume."""
    from sfumato.models.ownership import Written, check_outputs
    from sfumato.restoration.begun import is_begun
    from sfumato.restoration.folder import is_folder_of_images, restore_folder
    from sfumato.restoration.planning import Settings, plan_restoration
    from sfumato.system.device import AUTO, told_device
    from sfumato.system.marks import ANYTHING, JOURNAL, PICTURE

    note = functools.cache(_note)  # each once, however many images it applies to
    engine = _engine(workers, scheduler, tls, device)
    settings = Settings(
        num_samples=samples,
        num_steps=steps,
        seed=seed,
        quantiles=tuple(quantiles or ()),
        keep_samples=keep_samples,
        uncertainty=uncertainty,
        axes=axes,
        on_target_grid=on_target_grid,
        ome_zarr=ome_zarr,
        chunk=chunk,
        halo=_halo(halo),
        tile=tile,
        batch=batch,
        threads=1 if threads is None and workers else threads,
        fast=fast,
        choice=choice_of(channels, scene, times),
        dtype=dtype,
        pass_through=pass_through,
    )
    if uncertainty == "schedule":
        from sfumato.diffusion.uncertainty import SCHEDULE_NOTE

        note(SCHEDULE_NOTE)
    if is_folder_of_images(source):
        alone = {"--preview": preview, "--verify": verify, "--shard": shard}
        alone |= {"--picture": picture, "--journal": journal}
        if given := [name for name, value in alone.items() if value]:
            raise RecipeError(f"{given[0]} was given with a folder; it works on one image; name that image")
        if scheduler is None:
            say_device(device)
        if dry_run:
            _plan_folder(model, source, output, settings, format, device, note)
            return
        each = functools.partial(restore_folder, model, source, output, settings, suffix=format, engine=engine)
        _restore_folder(functools.partial(each, device=device, note=note), output, fast=fast)
        return
    planned = plan_restoration(model, source, output, settings, device=device, journal=journal)
    if device == AUTO and scheduler is None and not verify:
        say(told_device(planned.job.device, is_recorded=is_begun(planned)))
    for told in planned.measured.told_choice:
        note(told)
    if planned.told_halo is not None and preview is None:
        note(planned.told_halo)
    if dry_run:
        from sfumato.restoration.forecast import forecast

        typer.echo("\n".join(forecast(planned).lines()))
    elif preview is not None:
        check_outputs([Written(preview, PICTURE)], [model, source])
        from sfumato.restoration.preview import draw_preview

        say(f"preview: {draw_preview(planned, preview)}")
    elif verify:
        _verify(planned, output, note)
    else:
        written = [Written(file, ANYTHING) for file in planned.files]
        written += [] if picture is None else [Written(picture, PICTURE)]
        check_outputs([*written, Written(planned.journal, JOURNAL)], [model, source])
        _restore_image(planned, engine, shard, picture, note)


def _note(text: str) -> None:
    say(text if text.startswith("warning: ") else f"note: {text}")


def _plan_folder(
    model: Path, source: str, output: str, settings: "Settings", suffix: str | None, device: str,
    note: Callable[[str], None],
) -> None:  # fmt: skip
    """Print what there is to do in a folder, and what it costs."""
    from sfumato.restoration.folder import plan_folder

    planned = plan_folder(model, source, output, settings, suffix=suffix, device=device, note=note)
    typer.echo("\n".join(planned.lines()))
    if planned.failed:
        raise typer.Exit(1)


def _restore_folder(run: Callable[..., list[str]], output: str, *, fast: bool) -> None:
    """Restore the images of a folder, then report how many are done and which failed."""
    from sfumato.restoration.folder import FailedImagesError
    from sfumato.system.progress import Bar

    begun: list[str] = []

    def tell(name: str, done: int, total: int) -> None:
        begun.append(name)
        say(f"{done + 1} of {total}: {name}")

    failure = None
    with Bar("restoring", 0) as bar:

        def show(name: str, done: float, total: int) -> None:
            bar.show(done, f"images  {name}", total=total)

        try:
            files = run(progress=tell, within=show)
        except FailedImagesError as error:
            files, failure = error.files, error
    say(f"{'restored' if begun else 'already restored'}: {len(files)} images in {output}{_UNDRAWN * fast}")
    if failure is not None:
        say(f"error: {failure}")
        raise typer.Exit(1)


def _verify(planned: "Restoration", output: str, note: Callable[[str], None]) -> None:
    from sfumato.restoration.run import verify

    if wrong := verify(planned, note):
        places = ", ".join(str(planned.job.plan.task(number).corner) for number in wrong[:20])
        say(
            f"error: {len(wrong)} chunks differ from the journal: {places}; they now count as missing: rerun "
            "the command without --verify to restore them again"
        )
        raise typer.Exit(1)
    say(f"verified: {output}")


def _restore_image(
    planned: "Restoration", engine: "Engine", shard: str | None, picture: Path | None, note: Callable[[str], None]
) -> None:
    from sfumato.restoration.begun import is_finished
    from sfumato.restoration.intervals import why_uncalibrated
    from sfumato.restoration.likeness import likeness
    from sfumato.restoration.run import run_restoration
    from sfumato.system.progress import Bar

    was_there = is_finished(planned)
    if not was_there and (found := likeness(planned.measured, planned.model)) is not None:
        say(f"{'warning' if found.is_warned else 'note'}: {found.text}")
    with Bar("restoring", planned.job.plan.num_tasks) as bar:

        def show(now: "Progress") -> None:
            pace = f"  {now.megapixels / now.seconds:.3g} megapixels/s per worker" if now.seconds else ""
            bar.show(now.done + now.share, f"chunks{pace}")

        files = run_restoration(planned, engine=engine, shard=_shard(shard), progress=show, note=note)
    if not files:
        say(f"restored: shard {shard}; other shards have chunks left")
        return
    if picture is not None:
        from sfumato.restoration.preview import draw_result

        draw_result(planned, picture)
    spread = files[1] if len(files) > 1 else "none, since this model is a regression"
    undrawn = _UNDRAWN * planned.job.is_fast
    say(f"{'already restored' if was_there else 'restored'}: {files[0]}, uncertainty: {spread}{undrawn}")
    for line in _scale_lines(files) if planned.is_scaled else ():
        say(line)
    if planned.correction is not None:
        say(f"intervals: {files[2]} to {files[3]}: {planned.correction.label}")
    elif reason := why_uncalibrated(planned.model, planned.restorer.sampled):
        say(reason)
    kept = [file for file, output in zip(files, planned.job.outputs, strict=True) if output.content == "sample"]
    if kept:
        say(f"samples: {kept[0]} to {kept[-1]}")


def _scale_lines(files: list[str]) -> list[str]:
    """How values follow from the numbers in files, one line for each scale."""
    from sfumato.data.images.sidecar import origin_of
    from sfumato.data.images.whole_numbers import Scale

    names: dict[str, list[str]] = {}
    for file in files:
        scale = Scale.noted(origin_of(Path(file)))
        names.setdefault("" if scale is None else scale.told, []).append(Path(file).name)
    return [f"stored as uint16: {told}: {', '.join(group)}" for told, group in names.items() if told]


def _engine(workers: int | None, scheduler: str | None, tls: tuple[Path, Path, Path] | None, device: str) -> "Engine":
    from sfumato.restoration.engines import Certificates, Dask, InProcess

    if workers is not None and scheduler is not None:
        raise RecipeError("--workers and --scheduler were both given; expected one: start workers or join a scheduler")
    if workers is not None and workers < 1:
        raise RecipeError(f"--workers is {workers}; give at least 1")
    if workers is None and scheduler is None:
        return InProcess(device)
    return Dask(workers or 1, scheduler, Certificates(*tls) if tls else None, device)


def _halo(text: str | None) -> "Halo | None":
    if text is None:
        return None
    if text == "reach":
        return "reach"
    if not text.isdigit():
        raise RecipeError(f"--halo is {text!r}; expected a number of pixels, such as 64, or reach")
    return int(text)


def _shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, _, last = text.partition("/")
    if not (first.isdigit() and last.isdigit() and int(first) < int(last)):
        raise RecipeError(f"--shard is {text!r}; expected i/n with i from 0 to n - 1, such as 0/4")
    return int(first), int(last)
