"""Write the card of a model: what it restores, its training data, its scores and calibration, and its limits.

Everything on it is read from the model file; if the file does not know something, the card says so. In the provenance,
`images` says where training images come from and `limits` what the model cannot do; all other entries are scores.
"""

from dataclasses import dataclass

from sfumato.models.intervals import Correction
from sfumato.models.model_file import LoadedModel, ModelInfo
from sfumato.restoration.conditions import measured_channels
from sfumato.system.escaping import in_markdown
from sfumato.system.version import __version__

__all__ = ["CITATION", "Credits", "model_card"]

CITATION = (
    "della Maggiora, G., Croquevielle, L. A., Deshpande, N., Horsley, H., Heinis, T. & Yakimovich, A. "
    "Conditional Variational Diffusion Models. ICLR 2024, arXiv:2312.02246"
)

_IMAGES, _LIMITS = "images", "limits"
_PROBLEMS = {
    "pairs": "images like the training targets from images like the training inputs",
    "biosr": "structured-illumination resolution from widefield images of fluorescent specimens (BioSR)",
    "tsim": "structured-illumination resolution from widefield images (tSIM)",
    "dlsim": "structured-illumination resolution from fewer or dimmer raw frames (DL-SIM)",
    "sted": "STED resolution from confocal images",
    "storm": "single-molecule localisation images from widefield images",
    "phase": "quantitative phase from defocused intensities",
    "natural": "photographs on a finer grid",
}


@dataclass(frozen=True)
class Credits:
    """What a model file cannot know: who made it, and on which terms it may be used.

    Attributes:
        licence: SPDX identifier, such as CC-BY-4.0.
        authors: Names of people or groups, at least one.
    """

    licence: str
    authors: tuple[str, ...]


def model_card(model: LoadedModel, credits: Credits, *, usage: str) -> str:
    """The card in Markdown.

    Args:
        model: From :func:`sfumato.load`.
        credits: Who made it, and its licence.
        usage: Markdown on how to use it at the card's destination.
    """
    info, settings, network = model.info, model.info.recipe, model.info.recipe.model
    count = sum(parameter.numel() for parameter in model.model.parameters())
    title, problem = in_markdown(settings.name), in_markdown(settings.problem)
    sections = {
        f"# {title}": f"Restores {_PROBLEMS.get(settings.problem, problem)}. Made with sfumato, "
        f"version {__version__}: conditional variational diffusion, which draws samples of the images that "
        "could lie behind a measured one.",
        "## Use": usage.strip(),
        "## Input and output": "\n".join(
            [
                f"- {_count(info.condition_channels, 'channel')} in, {_count(info.target_channels, 'channel')} out, "
                f"{network.ndim} spatial axes of any size.",
                *_computed(info),
                f"- Upsamples by {_factor(info.factor)}.",
                f"- Inputs have the units of the training inputs: {_range(model, 'condition')}. Outputs have those of "
                f"the training targets: {_range(model, 'target')}.",
                f"- Method {network.method}, network {network.network}, {count:,} weights.",
            ]
        ),
        "## Training data": _data(model),
        "## Validation": _metrics(model),
        "## Calibration": _calibration(model),
        "## Limits": _limits(model),
        "## Licence and citation": f"{credits.licence}, by {', '.join(credits.authors)}. "
        f"Please cite the method: {CITATION}.",
        "## Identity": f"SHA-256 of the model file: `{model.sha256}`",
    }
    return "\n\n".join(f"{title}\n\n{text}" for title, text in sections.items()) + "\n"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _computed(info: ModelInfo) -> list[str]:
    """A note for models whose channels are not all measured."""
    measured = measured_channels(info)
    if measured == info.condition_channels:
        return []
    return [
        f"- The first {measured} are measured. The others are computed from them for the whole image (for phases, "
        "solutions of the transport equation); sfumato does so itself, other software must be given them."
    ]


def _factor(factor: tuple[int, ...] | None) -> str:
    if factor is None:
        return "a factor that the file does not say"
    return "1 (the grid stays)" if set(factor) == {1} else " x ".join(map(str, factor))


def _range(model: LoadedModel, side: str) -> str:
    """The values that become -1 and 1; nearly all training pixels lie between them."""
    if model.info.recipe.data.scales_each_image:
        return "each image is scaled by its own quantiles"
    norm = getattr(model.info, side)
    spans = [f"{o - s:.4g} to {o + s:.4g}" for o, s in zip(norm.offset, norm.scale, strict=True)]
    word = "within one deviation of the mean" if model.info.recipe.data.normalize == "mean_std" else "mostly"
    return f"{word} {', '.join(spans)}"


def _data(model: LoadedModel) -> str:
    recipe = model.info.recipe
    lines = [f"- Problem: `{in_markdown(recipe.problem)}`."]
    if recipe.forward:
        named = [f"{in_markdown(key)} = {value}" for key, value in recipe.forward.items()]
        lines.append(f"- Forward model: {', '.join(named)}.")
    steps, batch = recipe.train.steps, recipe.train.batch_size
    lines.append(f"- Planned training: {steps:,} steps of {batch} patches of {recipe.data.patch} pixels a side.")
    unknown = "The model file does not name the images; its owner can add where they come from here."
    lines.append(f"- {in_markdown(model.info.provenance.get(_IMAGES) or unknown, code=True)}")
    return "\n".join(lines)


def _metrics(model: LoadedModel) -> str:
    words = {key: value for key, value in model.info.provenance.items() if key not in (_IMAGES, _LIMITS)}
    known = {key: value for key, value in words.items() if isinstance(value, int | float | str)}
    if not known:
        return "The model file holds no scores. Run `sfumato evaluate` on images with known truth before trusting it."
    lines = [
        f"- {in_markdown(key)}: {f'{value:.6g}' if isinstance(value, float) else in_markdown(value)}"
        for key, value in known.items()
    ]
    lines.append(
        "\n`validation` is the loss on held-out images of the training set. Run `sfumato evaluate` on your own images "
        "with known truth: scores do not carry over to other specimens or instruments."
    )
    return "\n".join(lines)


def _calibration(model: LoadedModel) -> str:
    found, fast = model.info.calibration, model.info.fast_calibration
    if model.info.recipe.model.method == "regression":
        return "A regression gives one image and no uncertainty."
    told = _of_samples(found)
    if fast is not None:
        told += f"\n\nWithout samples (`--fast`): {fast.label}. Made from {fast.num_images} images."
    return told


def _of_samples(found: Correction | None) -> str:
    if found is None:
        return (
            "Not calibrated: the standard deviation of the samples may be too small or too large. "
            "`sfumato calibrate` makes intervals with a guaranteed coverage from held-out images."
        )
    return (
        f"{found.label[0].upper()}{found.label[1:]}. Made from {found.num_images} images; before, the samples' own "
        f"interval held {found.raw_coverage:.3f} of the pixels. It holds for {found.sampled.num_samples} samples of "
        f"{found.sampled.num_steps} steps and for no other setting."
    )


def _limits(model: LoadedModel) -> str:
    lines = [
        "- Samples are guesses that agree with the training data. Where they differ, detail is invented: look at the "
        "standard deviation before you look at the mean.",
        "- Images unlike the training images (other specimens, optics, pixel sizes, noise) get confident, wrong "
        "answers; neither samples nor calibration can tell.",
        "- Not for diagnosis, nor for any decision about a person.",
    ]
    if own := model.info.provenance.get(_LIMITS):
        lines.insert(0, f"- {in_markdown(own, code=True)}")
    if model.info.recipe.data.scales_each_image:
        lines.append("- Intensities are relative: each image is scaled separately, so outputs cannot be compared.")
    return "\n".join(lines)
