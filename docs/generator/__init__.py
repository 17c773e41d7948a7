"""The parts of docs/generate.py, by what they write."""
