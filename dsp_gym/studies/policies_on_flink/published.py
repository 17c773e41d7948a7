"""The real runs of published figures, for a simulation that has changed since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import ConfigError


class PublishedRun(NamedTuple):
    """The figures of one real run."""

    cost: float
    late_s: float
    rescales: int
    failures: int
    conserved: bool  # every record of the load arrived once
    started: str  # UTC
    version: str  # of dsp-gym


@dataclass(frozen=True, slots=True)
class PublishedRuns:
    """The real runs in figures that `dsp-gym validate --out` wrote."""

    cases: Mapping[str, Mapping[str, tuple[PublishedRun, ...]]]  # by case and policy
    outages_s: Mapping[str, tuple[float, float, float]]  # by case

    @classmethod
    def of(cls, file: Path) -> PublishedRuns:
        """Read figures.

        Args:
            file: Written by `--out`.

        Returns:
            The runs.

        Raises:
            ConfigError: The file is none.
        """
        try:
            figures: Any = parse_json(file.read_text(encoding="utf-8"))
            started = iter(figures["recorded"])
            version = ", ".join(figures["versions"])
            cases, outages_s = {}, {}
            for case in figures["cases"]:
                label = f"{case['label']} {case['load']}"
                cases[label] = {
                    one["policy"]: _runs(one, started, version) for one in case["policies"]
                }
                low, middle, high = map(float, case["outage_s"])
                outages_s[label] = low, middle, high
        except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
            raise ConfigError(
                f"holds no figures of a validation: {type(error).__name__}: {error}",
                file=file,
                remedy="Name a file that `dsp-gym validate CONFIG --out FILE` wrote.",
            ) from None
        return cls(cases, outages_s)


def _runs(one: Any, started: Iterator[object], version: str) -> tuple[PublishedRun, ...]:
    real = one["real"]
    moments = [str(next(started)) for _ in real["cost"]]
    counts = (real["rescales"], one["failures"], one["conserved"])
    return tuple(
        PublishedRun(
            float(cost), float(late_s), int(rescales), int(failures), bool(conserved), when, version
        )
        for cost, late_s, rescales, failures, conserved, when in zip(
            real["cost"], real["late_s"], *counts, moments, strict=True
        )
    )
