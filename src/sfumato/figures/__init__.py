"""Draw arrays and models: panels of images, plots, network diagrams."""
