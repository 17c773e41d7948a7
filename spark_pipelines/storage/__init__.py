"""Datasets on disk: built aside, published whole, never half."""
