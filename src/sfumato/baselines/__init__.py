"""What CVDM is compared with: regression networks and classical deconvolution. CDDPM and CVDM-simple are schedules."""
