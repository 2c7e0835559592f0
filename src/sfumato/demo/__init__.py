"""What comes with the package to see it work: a small model, specimens that are simulated, and one picture."""
