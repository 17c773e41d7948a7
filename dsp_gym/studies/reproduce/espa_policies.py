"""The policies of the espa runs, by the names and settings under which they were recorded.

The runs are those of github.com/delftdata/espa-autoscaling (commit 2290fa6). Each of its six rules
is a policy, or a file of `configs/policies`, and one parameter that the authors varied.
"""

from __future__ import annotations

from typing import NamedTuple

from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.policies.config import PolicyConfig, with_params
from dsp_gym.policies.registry import make, resolve

REACTIVE = "-reactive"
"""Ending of the names of DS2 in the second repeat; the first has it in none."""


class EspaRule(NamedTuple):
    """A policy of ours, and what the setting of a run is there."""

    policy: str  # a policy, or a file of configs/policies
    parameter: str
    unit: float  # of the setting, in the parameter's own


RULES = {
    "hpa": EspaRule("espa-hpa", "target_utilization", 0.01),
    "dhalion": EspaRule("dhalion-reactive", "latency_s", 1.0),
    "ds2-original": EspaRule("ds2-reactive", "over_provisioning", 0.01),
    "ds2-updated": EspaRule("espa-ds2-updated", "over_provisioning", 0.01),
    "varga1": EspaRule("espa-varga1", "utilization_target", 1.0),
    "varga2": EspaRule("espa-varga2", "utilization_target", 1.0),
}
"""By the names of the table of runs."""


def is_known(name: str) -> bool:
    """Return whether there is a policy for a name of the table of runs.

    Returns:
        True for the six rules, in either repeat's spelling.
    """
    return name.removesuffix(REACTIVE) in RULES


def espa_policy(name: str, setting: float) -> PolicyConfig:
    """Return the policy of a run.

    Args:
        name: As recorded: hpa, dhalion, ds2-original, ds2-updated, varga1 or varga2.
        setting: As recorded. HPA: target CPU, %; Dhalion: latency, s; DS2: over-provisioning, %;
            Varga: target utilisation, 0..1.

    Returns:
        Its configuration.

    >>> espa_policy("ds2-updated-reactive", 33.0).params
    {'up_latency_s': 5, 'down_latency_s': 1, 'over_provisioning': 0.33}

    Raises:
        ConfigError: No policy has that name, or it cannot have that setting.
    """
    if not is_known(name):
        raise ConfigError(f"no rule {name!r} in the espa runs. {did_you_mean(name, RULES)}".strip())
    rule = RULES[name.removesuffix(REACTIVE)]
    _, config, _ = resolve(rule.policy)
    found = with_params(config.params, {rule.parameter: round(setting * rule.unit, 9)})
    asked = PolicyConfig(policy=config.policy, params=found)
    try:
        make(asked)
    except ConfigError as error:
        raise ConfigError(f"{name} cannot have the setting {setting:g}: {error}") from error
    return asked
