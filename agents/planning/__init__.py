"""Agent A: planning by value iteration over the state of the load and the job's frontier.

`load` describes a load by a few numbers, `chain` learns their transitions, `value` prices a minute
and a rescale and solves the decision process, `policy` decides.
"""

from agents.planning.policy import MdpConfig, MdpPolicy

__all__ = ["MdpConfig", "MdpPolicy"]
