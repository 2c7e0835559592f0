"""What CVDM is compared with: regression networks and classical deconvolution. CDDPM and CVDM-simple are schedules."""

from sfumato.baselines.dfcan import DFCAN
from sfumato.baselines.regression import Regression

__all__ = ["DFCAN", "Regression"]
