"""Environment ids. Raised by one whenever the same seed would give another trajectory."""

from __future__ import annotations

import gymnasium

NAMESPACE = "dsp_gym"
IDS = {
    f"{NAMESPACE}/Nexmark-{query.upper()}-v0": f"nexmark-{query}"
    for query in ("q1", "q2", "q3", "q5", "q8", "q11")
}
"""Id of each scenario that is one shipped job."""

FROM_CONFIG = f"{NAMESPACE}/Autoscale-v0"
"""Id of the environment built from a config."""


def register_all() -> None:
    """Make the ids known to Gymnasium; nothing heavy is imported."""
    for name, job in [*IDS.items(), (FROM_CONFIG, None)]:
        if name not in gymnasium.registry:
            gymnasium.register(
                id=name,
                entry_point="dsp_gym.envs.single:AutoscaleEnv",
                vector_entry_point="dsp_gym.envs.vector:AutoscaleVectorEnv",
                kwargs={} if job is None else {"job": job},
            )
