"""Restore measured images: posterior mean, standard deviation and samples, in the units of the data."""
