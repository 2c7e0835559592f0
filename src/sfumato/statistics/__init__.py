r"""Pure functions of arrays: metrics, resolution, significance, and whether posterior samples can be trusted.

If the samples are right, a truth is exchangeable with the N draws made for its image: it is one more draw. What is
measured of calibration follows from that, with images (never pixels) as the unit of replication;
:func:`sfumato.statistics.calibration_report.measure` makes one report of it.

Samples have shape (N, M, C, \*spatial), N draws of M images, and truths (M, C, \*spatial), with 1 to 3 spatial axes.
"""
