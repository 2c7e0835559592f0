"""Compare and judge models: evaluate, calibrate, inspect, sweep."""
