r"""CVDM: a learned schedule and a denoising network, trained together.  [CVDM Sec. 3, Alg. 1]

.. math:: z_t = \sqrt{\gamma(t, x)}\, y + \sqrt{1 - \gamma(t, x)}\, \epsilon, \qquad
          network(x, \gamma(t, x), z_t) \to v\ \text{or}\ \epsilon
"""

from collections.abc import Callable
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from sfumato.diffusion import losses
from sfumato.diffusion.channels import called
from sfumato.diffusion.colour import Colour
from sfumato.diffusion.gaussian import (
    clean_from_eps,
    clean_from_velocity,
    diffuse,
    eps_from_velocity,
    gaussian_velocity,
    velocity,
)
from sfumato.diffusion.known import Known
from sfumato.diffusion.losses import Losses
from sfumato.diffusion.reading import Learns, ReadsOnce, Residual
from sfumato.diffusion.schedule import Schedule

__all__ = ["CVDM", "Form", "Objective", "Predicts", "Smoothness", "repeat_batch"]

Predicts = Literal["velocity", "noise"]
"""What the network outputs: ``noise`` as in the paper, or ``velocity``, which amplifies no error."""

Form = Literal["clean", "noise", "velocity"]
"""Three equivalent descriptions of a noisy image: each follows from any other and the noise level."""

Objective = Literal["min_snr", "velocity", "noise", "elbo"]
"""The square error that the network learns from. ``min_snr`` weights the velocity's by min(1, 20 / SNR): where noise is
faint, its error is mostly unpredictable. ``elbo`` weights the noise's by -SNR'/SNR and is, with prior and
reconstruction, the exact bound. The schedule learns from the noise's error, as in the paper, and with ``elbo`` from the
bound. The velocity's error is least where there is no noise, so if the schedule learned from it, all rates would fall
to their lower bound."""

_MOST_SNR = 20.0
"""Above this SNR, ``min_snr`` lowers the weight, as Hang et al. 2023 (arXiv 2303.09556) do above 5. With 5, narrow
posteriors are learned too badly: the check of benchmarks/training_on_exact.py fails."""

_LEAST_NOISE = 1e-6
"""Least variance added in training: only `PaperSchedule` can add less than none, and this lets it keep learning."""

Smoothness = Literal["gamma", "snr"]
"""The function whose curvature the smoothness term limits."""

_CURVATURES: dict[Smoothness, Callable[[Schedule, Tensor], Tensor]] = {
    "gamma": losses.smoothness,
    "snr": losses.snr_smoothness,
}
_SMOOTHNESS_WEIGHTS: dict[Smoothness, float] = {"gamma": 3e-4, "snr": 6e-8}
"""The reference code has 1e-3 for ``gamma``, which keeps almost all rates at their lower bound. SNR'' is larger: with
6e-8, the two terms have about the same size when training starts."""


class CVDM(ReadsOnce):
    r"""A conditional variational diffusion model.

    The model diffuses :math:`(y - c(x)) / scale` with a centre :math:`c`. The centre is 0 by default; the condition
    itself (``residual``, for super-resolution), or its last channels, if they are a first estimate; or the output of a
    mean network (zero-mean diffusion, arXiv 2406.04388), which is trained together with the rest by mean square error
    and is also an input of the denoising network. A linear ``start`` is a centre that needs no training; with both, the
    mean network corrects it. With a ``reader``, one network reads the condition once and the others see its features,
    so mean, rate and scale networks can be small. With a scale network, every pixel has its own scale: twice the
    standard deviation of what the centre leaves there, so that noise of one size means the same for all pixels.

    Args:
        schedule: Makes a :class:`~sfumato.diffusion.schedule.Schedule` from a condition (B, K, *spatial).
        network: Maps the concatenation of condition, gamma and noisy target, (B, K + 2 C, *spatial), to
            (B, C, *spatial); a mean network's output follows the condition, for K + 3 C channels.
        target_channels: C.
        predicts: What ``network`` outputs.
        objective: The error the network learns from; by default ``min_snr`` for velocity and ``noise`` for noise.
        mean_network: Maps the condition to the mean (B, C, *spatial).
        mean_error: The error that it learns from, ``mse`` or ``rmse``; see :func:`~sfumato.diffusion.losses.mean`.
        start: Maps the condition to a first estimate (B, C, *spatial), such as a
            :class:`~sfumato.nn.linear_filter.LinearFilter`; the mean network sees it after the condition.
        finish: Maps the sum of both to the centre, such as a linear filter fitted once the mean has been learned: a
            network learns fine structure last.
        reader: Maps what the mean network would see to features (B, F, *spatial); the mean network then maps these to
            the mean, and scale network, schedule and denoising network see them after the centre. They learn with the
            mean alone.
        scale_network: Maps condition and centre to the logarithm of each pixel's scale relative to all of them,
            (B, C, *spatial); the denoising network sees it after the centre.
        scale_finish: Maps what the scale network has learned to the scale that is used, such as smoothing, as what is
            learned of single pixels is noisy; not used while the scale learns alone, or its network would undo it.
        colour: Gives the noise the spectrum of what mean and scale leave; the network then learns how the velocity
            differs from that of a Gaussian of this spectrum.
        residual: Diffuse the difference from the condition, which must have C channels, or with ``"last"`` from its
            last C.
        scale: Divides what is diffused, so that it has about half of unit size; training measures it.
        smoothness: ``gamma`` (the paper's choice) or ``snr`` (its motivation).
        smoothness_weight: The paper's alpha; by default 3e-4 for ``gamma`` and 6e-8 for ``snr``, whose square curvature
            is some 5e3 times larger.
        t_min: Where the times of ``elbo`` start; its weight is infinite at 0, where SNR is.

    Example:
        >>> from sfumato import LearnedSchedule
        >>> from sfumato.nn import UNet
        >>> model = CVDM(LearnedSchedule(UNet(1, 1, base=4)), UNet(3, 1, base=4))
        >>> condition, target, eps = torch.zeros(3, 2, 1, 16, 16)
        >>> model.loss(condition, target, t=torch.rand(2), eps=eps).total.shape
        torch.Size([])
    """

    draws_samples: ClassVar[bool] = True
    """Whether there is a posterior to sample."""

    has_units = False
    """Whether a loaded model holds it and knows the units of its images, which it does not know itself."""

    def __init__(
        self,
        schedule: Callable[[Tensor], Schedule],
        network: Callable[[Tensor], Tensor],
        *,
        target_channels: int = 1,
        predicts: Predicts = "velocity",
        objective: Objective | None = None,
        mean_network: Callable[[Tensor], Tensor] | None = None,
        mean_error: losses.MeanError = "mse",
        start: Callable[[Tensor], Tensor] | None = None,
        finish: Callable[[Tensor], Tensor] | None = None,
        reader: Callable[[Tensor], Tensor] | None = None,
        scale_network: Callable[[Tensor], Tensor] | None = None,
        scale_finish: Callable[[Tensor], Tensor] | None = None,
        colour: Colour | None = None,
        residual: Residual = False,
        scale: float = 1.0,
        smoothness: Smoothness = "gamma",
        smoothness_weight: float | None = None,
        t_min: float = 1e-3,
    ) -> None:
        super().__init__()
        _check_choice("predicts", predicts, get_args(Predicts))
        objective = objective or ("min_snr" if predicts == "velocity" else "noise")
        _check_choice("objective", objective, get_args(Objective))
        _check_choice("mean_error", mean_error, get_args(losses.MeanError))
        _check_choice("smoothness", smoothness, get_args(Smoothness))
        if residual and (mean_network is not None or start is not None):
            raise ValueError(
                "residual is given with mean_network or start; the target has one centre, so give one of them"
            )
        if reader is not None and mean_network is None:
            raise ValueError(
                "reader is given without mean_network, but its features are learned with the mean; give both"
            )
        if scale <= 0:
            raise ValueError(f"scale is {scale}; give a positive number")
        if not 0 < t_min < 1:
            raise ValueError(f"t_min is {t_min}; the bound is infinite at 0, so give a number between 0 and 1")
        if colour is not None and (predicts != "velocity" or objective in ("noise", "elbo")):
            raise ValueError(
                f"colour is given with predicts {predicts!r} and objective {objective!r}; the network corrects a "
                "Gaussian's velocity, so use velocity and min_snr, or white noise"
            )
        self.schedule = schedule
        self.network = network
        self.target_channels = target_channels
        self.predicts = predicts
        self.objective: Objective = objective
        self.mean_network = mean_network
        self.mean_error: losses.MeanError = mean_error
        self.start = start
        self.finish = finish
        self.reader = reader
        self.scale_network = scale_network
        self.scale_finish = scale_finish
        self.colour = colour
        self.learns: Learns = "all"
        if scale_network is not None:
            self.register_buffer("log_scale", torch.zeros(()))  # of all pixels, measured by training
        self.residual = residual
        self.scale = scale
        self.smoothness = smoothness
        self.smoothness_weight = _SMOOTHNESS_WEIGHTS[smoothness] if smoothness_weight is None else smoothness_weight
        self.t_min = t_min

    def predict(self, noisy: Tensor, log_gamma: Tensor, seen: Tensor, form: Form = "clean") -> Tensor:
        """Run the network once to predict what is in ``noisy``.  [CVDM Eq. 8]

        Args:
            noisy: :math:`z_t`, shape (B, C, *spatial).
            log_gamma: Logarithm of the signal variance, broadcastable to ``noisy``.
            seen: What :meth:`read` gives the network to see of the condition, :attr:`Known.seen`.
            form: The form to return; nothing else is computed.

        Returns:
            The clean image (in units of what is diffused, see :class:`CVDM`), the noise or the velocity, shape of
            ``noisy``.
        """
        output = self.output(noisy, log_gamma, seen)
        if form == self.predicts:
            return output
        if self.predicts == "velocity":
            convert = clean_from_velocity if form == "clean" else eps_from_velocity
            return convert(noisy, output, log_gamma)
        clean = clean_from_eps(noisy, output, log_gamma)
        return clean if form == "clean" else velocity(clean, output, log_gamma)

    def output(self, noisy: Tensor, log_gamma: Tensor, seen: Tensor) -> Tensor:
        """What :attr:`predicts` names: the network's output, with coloured noise added to a Gaussian's velocity."""
        output = self.ask_network(noisy, log_gamma.exp().expand_as(noisy), seen)
        return output if self.colour is None else output + gaussian_velocity(noisy, log_gamma)

    def ask_network(self, noisy: Tensor, gamma: Tensor, seen: Tensor) -> Tensor:
        """The network's own output; gamma is the signal variance in the shape of ``noisy``."""
        known, target = seen.shape[1], noisy.shape[1]
        made_of = f"{known} known (the condition and what was read of it), {target} of gamma, {target} noisy"
        images = torch.cat([seen, gamma, noisy], dim=1)
        return called(self.network, "network", images, made_of, target).to(noisy.dtype)

    def loss(self, condition: Tensor, target: Tensor, t: Tensor, eps: Tensor) -> Losses:
        """The objective on one batch, a pure function of its arguments.  [CVDM Eq. 6, Alg. 1]

        Algorithm 1 draws (condition, target), t and eps, and descends the gradient of the returned total.

        Args:
            condition: The measured image, shape (B, K, *spatial).
            target: The image to predict, shape (B, C, *spatial).
            t: Times in [0, 1], shape (B); ``elbo`` maps the times of its term to [t_min, 1].
            eps: Unit normal noise, shape of ``target``.

        Returns:
            The named terms, each of shape ().
        """
        self._check_batch(condition, target, t, eps)
        if self.learns == "mean":
            return self._only_mean(condition, target)
        if self.learns == "scale":
            return self._only_scale(condition, target)
        known = self.read(condition)
        mean, scale = self._of_known(known, target)
        eps = eps if self.colour is None else self.colour.of_patches(eps)
        schedule, known = known.schedule, known.detach()
        diffused = known.diffused(target)
        start = self.t_min if self.objective == "elbo" else 0.0
        t_noisy = start + (1 - start) * t
        log_gamma = schedule.log_gamma(t_noisy).clamp(max=-_LEAST_NOISE)
        noisy = diffuse(diffused, eps, log_gamma)
        weight = self._weight(schedule, t_noisy, log_gamma)
        if self.objective in ("noise", "elbo"):
            eps_hat = self.predict(noisy, log_gamma, known.seen, form="noise")
            diffusion = losses.diffusion(eps - eps_hat, weight)
        else:
            share = losses.schedule_share(log_gamma, weight)
            shown, level = (losses.with_gradient_times(share, values) for values in (noisy, log_gamma))
            v_hat = self.predict(shown, level, known.seen, form="velocity")
            diffusion = losses.velocity_diffusion(v_hat, noisy, diffused, eps, log_gamma, weight, self._evened)
        nothing = target.new_zeros(())
        return Losses(
            diffusion=diffusion,
            prior=losses.prior(schedule, diffused),
            consistency=losses.consistency(schedule, t),
            smoothness=self.smoothness_weight * _CURVATURES[self.smoothness](schedule, t),
            mean=mean,
            scale=scale,
            reconstruction=losses.reconstruction(schedule, self.t_min) if self.objective == "elbo" else nothing,
        )

    @property
    def _evened(self) -> losses.Evened | None:
        return None if self.colour is None else self.colour.evened

    def _of_known(self, known: Known, target: Tensor) -> tuple[Tensor, Tensor]:
        """The terms that mean network and scale network learn from; 0 for one that does not learn."""
        nothing = target.new_zeros(())
        learns_mean = self.mean_network is not None and self.learns in ("all", "mean")
        mean = nothing
        if learns_mean and known.center is not None:
            mean = losses.mean(target, known.center, self.mean_error)
        if not isinstance(known.scale, Tensor) or self._holds_scale:
            return mean, nothing
        return mean, self._scale_loss(target, known.center, known.scale)

    def _scale_loss(self, target: Tensor, center: Tensor | None, scale: Tensor) -> Tensor:
        left = target if center is None else target - center.detach()
        return losses.scale(left, (scale / 2).log())

    def _only_scale(self, condition: Tensor, target: Tensor) -> Losses:
        center, _, seen = self._see(condition)
        found = self._scale_loss(target, center, self._scales(seen)[1])
        return Losses.of_mean(torch.zeros_like(found))._replace(scale=found)

    def _only_mean(self, condition: Tensor, target: Tensor) -> Losses:
        center = self.center(condition)
        assert center is not None, "only a model with a mean network learns its mean alone"
        return Losses.of_mean(losses.mean(target, center, self.mean_error))

    def _weight(self, schedule: Schedule, t: Tensor, log_gamma: Tensor) -> Tensor | None:
        """Weight of the square error at times t, shape of the rate; None for 1."""
        if self.objective == "min_snr":
            # Detached: otherwise the schedule could lower its loss by spending time where the weight is small.
            return (_MOST_SNR * (-log_gamma).expm1()).clamp(max=1).detach()
        if self.objective == "elbo":
            return -(1 - self.t_min) * schedule.log_snr(t, order=1)
        return None

    def validated(self, terms: Losses) -> Tensor:
        """The terms that measure how good a model is; the others only guide learning."""
        if self.learns in ("mean", "scale"):
            return terms.mean + terms.scale
        return terms.diffusion + terms.prior + terms.reconstruction

    def forward(self, condition: Tensor, target: Tensor, t: Tensor, eps: Tensor) -> Losses:
        """The same as :meth:`loss`; training calls this one, so that DistributedDataParallel is involved."""
        return self.loss(condition, target, t, eps)

    def _check_batch(self, condition: Tensor, target: Tensor, t: Tensor, eps: Tensor) -> None:
        if target.shape != (condition.shape[0], self.target_channels, *condition.shape[2:]):
            raise ValueError(
                f"target has shape {tuple(target.shape)} and condition {tuple(condition.shape)}; expected "
                f"{self.target_channels} target channels and equal batch and image sizes: resample one of them"
            )
        if eps.shape != target.shape or t.shape != target.shape[:1]:
            raise ValueError(
                f"eps has shape {tuple(eps.shape)} and t {tuple(t.shape)}; expected {tuple(target.shape)} "
                f"as the target and {tuple(target.shape[:1])}, one time per image"
            )


def repeat_batch(images: Tensor, num_samples: int) -> Tensor:
    """Stack ``num_samples`` copies of a batch along the batch axis, in the order of ``state.flatten(0, 1)``.

    The copies of a single image share its memory.
    """
    if len(images) == 1:
        return images.expand(num_samples, *images.shape[1:])
    return images.repeat(num_samples, *[1] * (images.ndim - 1))


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(choices)}")
