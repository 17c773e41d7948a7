"""Evaluation: what policies cost and miss on the same loads, with intervals."""
