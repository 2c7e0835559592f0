r"""Whether posterior samples can be trusted: their spread measured against truths.

If the samples are right, a truth is exchangeable with the N draws made for its image: it is one more draw. Everything
here follows from that, with images (never pixels) as the unit of replication. :func:`measure` makes one report; the
figures it holds are functions of their own in the modules of this package.

Samples have shape (N, M, C, \*spatial), N draws of M images, and truths (M, C, \*spatial), with 1 to 3 spatial axes.
"""

from sfumato.calibration.report import CalibrationReport, Estimate, measure

__all__ = ["CalibrationReport", "Estimate", "measure"]
