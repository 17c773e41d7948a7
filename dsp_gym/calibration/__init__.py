"""Calibration: measurements in, a job file whose numbers were fitted to them out."""
