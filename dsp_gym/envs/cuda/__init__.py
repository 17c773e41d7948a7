"""Environments on a graphics card: every step of every one of them is a thread."""
