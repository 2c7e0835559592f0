"""Image files: one module for each format, read whole or by region; a crash leaves no half-written file."""
