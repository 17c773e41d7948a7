"""Learned policies: training, the policy folder, and inference without torch."""
