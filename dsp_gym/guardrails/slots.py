"""The slots a job may use, as bounds that hold for every policy."""

from __future__ import annotations

from dsp_gym.config import files
from dsp_gym.errors import ConfigError
from dsp_gym.guardrails.bounds_and_quota import BoundsAndQuotaConfig
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.spec import JobSpec


def bounded(
    guardrails: str | GuardrailsConfig | None, spec: JobSpec, max_slots: int
) -> GuardrailsConfig:
    """Add the slots a job may use to its guardrails, as their quota.

    Sources hold slots and cannot be scaled, so their slots are taken off.

    Returns:
        The guardrails, with the tighter of both bounds.

    Raises:
        ConfigError: The slots do not suffice for the sources and one more task.
    """
    if guardrails is None:
        guardrails = GuardrailsConfig()
    elif not isinstance(guardrails, GuardrailsConfig):
        guardrails = files.load_model(GuardrailsConfig, "guardrails", guardrails)
    own = next((g for g in guardrails.guardrails if isinstance(g, BoundsAndQuotaConfig)), None)
    others = tuple(g for g in guardrails.guardrails if not isinstance(g, BoundsAndQuotaConfig))
    given = own or BoundsAndQuotaConfig()
    if spec.slot_sharing:
        highest = min(max_slots, given.max_parallelism or max_slots)
        limits: dict[str, object] = {"max_parallelism": highest}
    else:
        sources = sum(v.parallelism for v in spec.vertices if v.kind == "source")
        if max_slots <= sources:
            raise ConfigError(
                f"{max_slots} slots are not enough for {sources} source tasks and the rest of "
                f"the job '{spec.job}'",
                key="max_slots",
                remedy="Allow more slots, or start a larger cluster: dsp-gym flink up --slots N",
            )
        left = float(max_slots - sources)
        limits = {"cores": left if given.cores is None else min(left, given.cores)}
    return GuardrailsConfig(guardrails=(*others, given.model_copy(update=limits)))
