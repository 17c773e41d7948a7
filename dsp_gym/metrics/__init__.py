"""Metrics of a real job: what they are called, how samples are kept, how a snapshot is made."""
