"""Recordings `dsp-gym/recording/1`: what a job showed while it ran, for calibration and replay."""
