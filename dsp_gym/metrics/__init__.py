"""Metrics of a real job: their names, their samples, and snapshots from them."""
