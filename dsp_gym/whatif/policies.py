"""The policies of a replay, each in charge of the model as it would be of the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsp_gym.config.files import load_model
from dsp_gym.control.config import RunConfig
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.control.start import guardrails_of, policy_names
from dsp_gym.errors import ConfigError, DspGymError
from dsp_gym.guardrails.chain import build_for
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.policies.capabilities import capabilities_of
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import make, resolve
from dsp_gym.whatif.stretch import Charge


@dataclass(frozen=True, slots=True)
class ReplayedPolicy:
    """A policy with its guardrails; both are resolved: no name is left to look up."""

    label: str
    policy: PolicyConfig
    guardrails: GuardrailsConfig | None

    @classmethod
    def of(
        cls,
        label: str | None,
        named: str | PolicyConfig,
        guardrails: str | GuardrailsConfig | None,
    ) -> ReplayedPolicy:
        """Resolve names and refuse what could not have run beside the job.

        Returns:
            The entrant; its label is the policy's where none is given.

        Raises:
            ConfigError: The policy or its guardrails do not exist, or it needs the future.
        """
        own, policy, _ = resolve(named)
        if isinstance(guardrails, str):
            guardrails = load_model(GuardrailsConfig, "guardrails", guardrails)
        found = cls(label or own, policy, guardrails)
        if capabilities_of(found.charge().policy).know_future is not None:
            raise ConfigError(
                "needs the future load, which no deployed policy has",
                key="policies",
                value=found.label,
                remedy="Name a policy that could have run.",
            )
        return found

    def charge(self) -> Charge:
        """The policy, newly made, with its guardrails.

        Returns:
            Both.
        """
        policy = make(self.policy)
        return Charge(policy, build_for(policy, self.guardrails))


def named_entrants(policies: Sequence[str], guardrails: str | None) -> tuple[ReplayedPolicy, ...]:
    """The policies that a command names.

    Args:
        policies: names, files or folders.
        guardrails: of each: a shipped name or a file; None: none.

    Returns:
        One for each.

    Raises:
        ConfigError: One does not exist, or two have the same label.
    """
    found: list[ReplayedPolicy] = []
    for named in policies:
        one = ReplayedPolicy.of(None, named, guardrails)
        if one.label in (INCUMBENT, *(other.label for other in found)):
            raise ConfigError(
                "is used twice, or is reserved for the deployed configurations",
                key="policies",
                value=one.label,
                remedy="Give each policy once, under its own name.",
            )
        found.append(one)
    return tuple(found)


def entrants_of_run(config: RunConfig) -> tuple[tuple[ReplayedPolicy, ...], dict[str, str]]:
    """The policies that were watched beside a job.

    Returns:
        Those that can be made here, and by name why another one cannot.
    """
    found, failures = [], {}
    for name, named in zip(policy_names(config), config.all_policies, strict=True):
        if name == INCUMBENT:
            continue
        try:
            found.append(ReplayedPolicy.of(name, named.policy, guardrails_of(config, named)))
        except DspGymError as error:
            failures[name] = str(error)
    return tuple(found), failures
