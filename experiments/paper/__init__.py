"""The harness behind experiments/paper_small.py: which trainings there are, how they are measured, what is claimed."""
