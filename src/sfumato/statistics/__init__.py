r"""Pure functions of arrays: metrics, resolution, significance, and whether posterior samples can be trusted.

If the samples are right, a truth is exchangeable with the N samples drawn for its image: it is one more sample. All
calibration measures follow from that, with images (never pixels) as the unit of replication;
:func:`sfumato.statistics.calibration_report.measure` combines them in one report.

Samples have shape (N, M, C, \*spatial), N samples of M images, and truths (M, C, \*spatial), with 1 to 3 spatial axes.
"""
