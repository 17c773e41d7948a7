"""The tunable parameters of an agent."""

from __future__ import annotations

from dsp_gym.experiments.tuning.space import Pick


def agent(pick: Pick) -> dict[str, object]:
    """Pick values by name, as in an experiment's `agent` section.

    The size of a rollout and the network stay as in the experiment: they affect speed as well as
    quality, and the duration of trials would differ tenfold.

    Args:
        pick: Source of the values.

    Returns:
        Keys of the section `agent`, with one nested mapping for the network.
    """
    return {
        "learning_rate": pick.real("learning_rate", 1e-4, 3e-3, log=True),
        "gamma": pick.one("gamma", [0.95, 0.97, 0.98, 0.985, 0.99, 0.995]),
        "gae_lambda": pick.real("gae_lambda", 0.8, 1.0),
        "clip_range": pick.real("clip_range", 0.1, 0.4),
        "ent_coef": pick.one("ent_coef", [0.0, 0.0005, 0.001, 0.002, 0.005, 0.01]),
        "n_epochs": pick.whole("n_epochs", 2, 10),
        "vf_coef": pick.real("vf_coef", 0.25, 1.0),
        "network": {"hold_bias": pick.real("network.hold_bias", 0.0, 6.0)},
    }
