"""Agent A: planning by value iteration over the state of the load and the frontier of the job.

`load` describes a load by few numbers, `chain` learns how they follow each other, `value` prices a
minute and a rescale and solves the decision process, `policy` decides.
"""

from agents.planning.policy import MdpConfig, MdpPolicy

__all__ = ["MdpConfig", "MdpPolicy"]
