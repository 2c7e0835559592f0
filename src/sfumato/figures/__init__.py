"""What is drawn of arrays and models: panels of images, plots, diagrams of networks."""
