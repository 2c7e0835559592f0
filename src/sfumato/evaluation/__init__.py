"""What compares and judges models: evaluate, calibrate, inspect, sweep."""
