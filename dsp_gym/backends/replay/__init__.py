"""Recordings, replayed as jobs."""
