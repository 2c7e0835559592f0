"""Utilities for the whole package: errors, crash-safe files, devices, progress, the version."""
