"""Costs of a rescale by name, as others measured or reported them."""

from __future__ import annotations

from typing import Literal, NamedTuple

RescalePreset = Literal["redeploy", "in-place", "espa", "drrs", "eks", "netflix"]


class RescaleCost(NamedTuple):
    """What a preset fills in, and where it is from."""

    mode: Literal["redeploy", "in_place"]
    outage_s: tuple[float, float, float]  # p10, p50, p90
    source: str


RESCALE_PRESETS: dict[RescalePreset, RescaleCost] = {
    "redeploy": RescaleCost(
        "redeploy",
        (56.0, 76.0, 93.0),
        "Demeter's runs of the operator's autoscaler: 99 rescales (demeter_cars_outages.csv)",
    ),
    "in-place": RescaleCost(
        "in_place",
        (6.0, 10.0, 20.0),
        "Demeter's runs in reactive mode: 384 rescales (demeter_cars_outages.csv)",
    ),
    "espa": RescaleCost(
        "in_place",
        (9.0, 15.5, 42.0),
        "reactive mode, the records since the last checkpoint read again: 168 rescales of Nexmark "
        "Q1, peak of the lag over the load (delftdata/espa-autoscaling, 2290fa6)",
    ),
    "drrs": RescaleCost(
        "in_place",
        (0.84, 2.1, 5.4),
        "assumption: in-place, shortened as DRRS shortens other methods: by 86 to 72.8 % (arXiv "
        "2503.11320)",
    ),
    "eks": RescaleCost(
        "redeploy",
        (120.0, 150.0, 180.0),
        "2 to 3 minutes, as users of Flink on Amazon EKS report",
    ),
    "netflix": RescaleCost(
        "redeploy",
        (60.0, 120.0, 180.0),
        "pauses of 1 to 3 minutes, as Netflix' talks report; their metrics are 2 minutes old, "
        "which is an option of the measurement",
    ),
}
"""By name; outages of redeployments leave out the restore of state, which the model adds."""


def with_preset(section: object) -> object:
    """Fill in what a `rescale` section leaves to its preset.

    Args:
        section: As a job file has it.

    Returns:
        The section with mode and outage of its preset, where it does not give its own; any other
        object as it is.
    """
    if isinstance(section, dict):
        for name, cost in RESCALE_PRESETS.items():
            if section.get("preset") == name:
                return {"mode": cost.mode, "outage_s": cost.outage_s, **section}
    return section
