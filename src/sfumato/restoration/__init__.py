"""From a measured image to its posterior: mean, standard deviation and samples, in the data's units."""
