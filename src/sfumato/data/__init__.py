"""From files to batches: image formats, pairs, the order of training, normalisation, packed stores."""
