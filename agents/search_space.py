"""The tunable parameters of an agent, and of planning."""

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


def planner(pick: Pick) -> dict[str, object]:
    """Pick what planning weighs: the price of a late minute, and the capacity counted on.

    Args:
        pick: Source of the values.

    Returns:
        Parameters of the policy `mdp`, by name.
    """
    return {
        "late_price": pick.real("late_price", 0.2, 40.0, log=True),
        "headroom": pick.real("headroom", 0.7, 1.0, physical="high"),
        "rescale_price": pick.real("rescale_price", 0.0, 120.0, physical="low"),
    }


def planner_walk(pick: Pick) -> dict[str, object]:
    """Pick the weights of the walk, too.

    A walk that is hardly pulled, or hardly jumps, is one without: there is nothing below.

    Args:
        pick: Source of the values.

    Returns:
        Parameters of the policy `mdp`, those of the walk under `walk`.
    """
    return {
        **planner(pick),
        "walk": {
            "std_1h": pick.real("walk.std_1h", 0.005, 0.6, log=True),
            "pull_per_h": pick.real("walk.pull_per_h", 0.005, 5.0, log=True, physical="low"),
            "jumps_per_day": pick.real("walk.jumps_per_day", 0.02, 200.0, log=True, physical="low"),
        },
    }
