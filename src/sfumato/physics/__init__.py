"""Forward models of the imaging problems, as pure functions of tensors.

Images have shape (..., H, W), any size, on any device. Lengths are in micrometres, spatial frequencies in cycles per
micrometre. Modules are reached by name: ``sfumato.physics.fresnel.propagate``.
"""
