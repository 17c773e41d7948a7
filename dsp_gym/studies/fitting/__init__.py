"""Fits of job files to published measurements, each a command anyone can rerun."""
