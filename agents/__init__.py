"""Agents, the planner and networks: training, the policy folder, and inference without torch."""
