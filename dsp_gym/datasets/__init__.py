"""Datasets on disk: what their manifest says, and reading them without Spark."""
