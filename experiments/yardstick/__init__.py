"""What restores best in the same minutes of one core: problems, contenders, scores and their comparison."""
