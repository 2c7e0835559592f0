"""Read and write image files, whole or by region, with one module per format; a crash leaves no half-written file."""
