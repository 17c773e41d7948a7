"""Pipelines that turn recordings, journals and rollouts into datasets."""
