"""Evaluation: cost and lateness of policies on the same loads, with intervals."""
