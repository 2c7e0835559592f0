"""Everything between image files and training batches: formats, pairs, sampling order, normalisation, packed stores."""
