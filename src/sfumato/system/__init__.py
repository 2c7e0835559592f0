"""What every part may use: errors, files that survive a crash, the device, progress, the version."""
