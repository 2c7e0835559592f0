"""What every name in the tables of docs/results.md is, in words."""

from collections.abc import Mapping

from paper.matrix import CVDM_0_1

__all__ = ["DESCRIPTIONS"]

DESCRIPTIONS: Mapping[str, str] = {
    "bicubic": "interpolation of the measurement; where it has the size of the truth, the measurement itself",
    "gaussian": "the measurement, blurred by a Gaussian whose width was tuned",
    "wiener": "Wiener filter with the blur that made the images, tuned",
    "richardson_lucy": "Richardson-Lucy deconvolution with that blur, tuned",
    "us_tie": "iterative solver of the transport-of-intensity equation (the paper's classical rival), damping tuned",
    "tie_uniform": "one Poisson solve of that equation, which takes the light in focus for uniform; damping tuned",
    "best_tie": "of six solutions of that equation the one that explains the measured images best",
    "flat": "a phase of zero everywhere",
    "regression": "the same network, trained on the mean square error; one estimate, no draws",
    "dfcan": "DFCAN (Qiao et al. 2021), another network, trained on the mean square error",
    "regression_transport": "`regression` that sees solutions of the transport equation beside the intensities",
    "cddpm_paper:ancestral": "conditional diffusion with a fixed schedule as the paper sets it: predicts noise, "
    "normalises over each image, linear schedule, ancestral sampling",
    "cddpm_paper": "the same model, sampled by 16 calls of the default solver",
    "cddpm_noise": "`cddpm_paper` with normalisation over channels",
    "cddpm_velocity": "that, predicting velocity, with our loss",
    "cddpm_0.04_unscaled": "that, with the schedule that trials chose",
    "cddpm_tuned": "conditional diffusion with the fixed schedule that trials chose; all else as in `cvdm_0_1`",
    "cddpm_cosine": "the same with the cosine schedule, which was not tuned, or came second",
    "cddpm_tuned_population": "`cddpm_tuned` with normalisation over the training set",
    CVDM_0_1: "the method as in version 0.1: a schedule for every pixel, learned with the network; nothing tuned",
    "cvdm_simple": "CVDM with one learned schedule for all pixels",
    "cvdm_two_networks": "CVDM with the paper's schedule, made of two networks, in place of ours",
    "cvdm_no_smoothness": "CVDM without the smoothness term of the loss",
    "cvdm_two_networks_no_smoothness": "`cvdm_two_networks` without it",
    "cvdm_exact_weight": "CVDM with the exact weight -SNR'/SNR of the bound in its loss",
    "cvdm_zero_mean": "CVDM that diffuses what a mean network, trained with it, leaves",
    "cvdm_transport": "CVDM that sees solutions of the transport equation, and diffuses what one of them leaves",
    "cvdm_population": "CVDM with normalisation over the training set, as recipes have it by default",
    "cvdm_lower_rates": "that, with rates between 6 and 30, not 8 and 40",
    "cvdm_instance": "CVDM with normalisation over each image, as in the paper",
    "cvdm_not_residual": "CVDM that diffuses the target, not its difference to the measurement",
}
