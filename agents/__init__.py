"""Agents, the planner and networks: training, the policy folder, and inference without torch."""

# dsp_gym.shared_names looks for this line: others install packages of this name, too.
__distribution__ = "dsp-gym"
