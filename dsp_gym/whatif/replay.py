"""Twins of a watched job: the model under the observed load, once per policy, as time goes on.

Every policy drives jobs of its own, with its own rescales, backlog and guardrails, and one of the
twins follows the deployed configurations. It is the scorecard's prediction, kept going: the twins
are a function of the journal alone, so a restart, which goes through the journal again, ends in
the same state bit for bit, and the scorecard of the same journal says the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.control.beside import TWINS_SCHEMA
from dsp_gym.control.config import RunConfig
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.errors import DspGymError
from dsp_gym.job.spec import CURRENCY, JobSpec
from dsp_gym.whatif.journal import ObservedRun
from dsp_gym.whatif.model_error import ModelError, Trust, error_of
from dsp_gym.whatif.policies import (
    charge_of,
    configuration_of,
    model_of,
    watched,
)
from dsp_gym.whatif.rescales import down_share
from dsp_gym.whatif.stretch import Driven, Stretch, settled_slots
from dsp_gym.whatif.tally import SUMMED, ObservedTally, Tally

__all__ = ["Twins"]

DAY_S = 86_400.0

KEPT = 720
"""Intervals of the curves: twelve hours at one a minute."""


class _Model(NamedTuple):
    """What holds for the whole journal; another one makes the twins begin anew."""

    configuration: Mapping[str, object]
    config: RunConfig
    spec: JobSpec
    vertices: tuple[str, ...]
    down_share: float | None
    tells_latency: bool
    simulated: bool

    @classmethod
    def of(cls, course: ObservedRun, config: RunConfig, journal: object) -> _Model:
        """As far as it is known by now."""
        return cls(
            dict(course.configuration or {}),
            config,
            model_of(config, course, journal),
            course.vertices,
            down_share(course),
            course.tells_latency,
            course.simulated,
        )


@dataclass(slots=True)
class _Period:
    """Sums since a time."""

    since_s: float
    policies: dict[str, Tally]
    observed: ObservedTally = field(default_factory=ObservedTally)

    @classmethod
    def of(cls, since_s: float, names: list[str], seeds: int) -> _Period:
        """An empty one."""
        return cls(since_s, {name: Tally.of(seeds) for name in names})


class _Point(NamedTuple):
    """One interval of the curves: means over the seeds by policy."""

    t_s: float
    cost_per_h: dict[str, float]
    lag_s: dict[str, float]
    late: dict[str, float]  # share of the interval
    tasks: dict[str, float]
    observed: dict[str, float]


class Twins:
    """The twins of the job of one journal.

    Args:
        journal: the journal's folder, for errors.
        seeds: twins of each policy, each with other service times, outages and noise.
        trust: the largest errors of a model whose figures are shown.
        config: the run's configuration; None: the one in the journal.
    """

    _gone: list[slice]  # stretches gone through
    _stretch: Stretch | None
    _at: slice | None  # where the one being gone through stood when it was begun
    _start: _Period | None
    _today: _Period | None
    _points: deque[_Point]
    _t_s: Floats  # of the intervals up to the last one gone through
    _until_s: float | None

    def __init__(
        self,
        journal: str | Path,
        seeds: int = 16,
        trust: Trust | None = None,
        config: RunConfig | None = None,
    ) -> None:
        self._config = config
        self.journal, self.seeds, self.trust = journal, seeds, trust or Trust()
        self.job = ""
        self.failures: dict[str, str] = {}
        """Why a policy has no twin any more."""
        self.begun = 0
        """How often the twins were begun."""
        self._model: _Model | None = None
        self._forget()

    @property
    def intervals(self) -> int:
        """Intervals that were gone through."""
        return 0 if self._start is None else self._start.policies[INCUMBENT].slots

    def follow(self, course: ObservedRun, *, final: bool = False, most: int | None = None) -> bool:
        """Go on as far as the observed run is known.

        Args:
            course: the observed run; longer than before, as a rule.
            final: whether the run is over, so that its last intervals are gone through, too.
            most: intervals to go through at most; None: all.

        Returns:
            Whether there is more to go through.

        Raises:
            ConfigError: The journal holds no configuration, or the model is of another job.
        """
        self.job = course.job
        config = self._config or configuration_of(course, self.journal)
        model = _Model.of(course, config, self.journal)
        parts = course.segments()
        if model != self._model or not self._continues(course, parts):
            self._forget()
            self._model = model
            self.begun += 1
        left = len(course) if most is None else most
        for part in parts[len(self._gone) :]:
            is_over = part is not parts[-1] or final
            stretch = self._stretch or self._begin(course, part)
            end = part.stop - part.start if is_over else settled_slots(course, part)
            while stretch.done < end:
                if not left:
                    return True
                self._take(course, part.start + stretch.done, stretch.step())
                left -= 1
            if part is not parts[-1]:
                self._gone.append(part)
                self._stretch = None
        return False

    def state(self) -> dict[str, Any]:
        """Everything that the twins' future depends on, and what they have come to.

        Returns:
            Arrays and JSON values by name, to be compared.
        """
        return {
            "gone": list(self._gone),
            "stretch": None if self._stretch is None else self._stretch.save(),
            "start": self._start,
            "today": self._today,
            "points": list(self._points),
            "failures": dict(self.failures),
        }

    def document(self) -> dict[str, Any]:
        """How the twins fare, `dsp-gym/twins/1`.

        Returns:
            JSON values. A period whose error is too large has no policies, and says why.
        """
        periods = {
            name: self._said(period)
            for name, period in (("start", self._start), ("today", self._today))
            if period is not None
        }
        trusted = "start" in periods and not periods["start"]["distrust"]
        return {
            "schema": TWINS_SCHEMA,
            "job": self.job,
            "currency": CURRENCY if self._model is None else self._model.spec.prices.currency,
            "seeds": self.seeds,
            "until_s": self._until_s,
            "intervals": self.intervals,
            "periods": periods,
            "curves": self._curves() if trusted else None,
            "failures": dict(self.failures),
        }

    def figures(self) -> dict[str, dict[str, Floats]]:
        """The scorecard's figures of every twin since the start.

        Returns:
            By policy and figure, (S,) each.
        """
        return {name: tally.figures() for name, tally in self._shown(self._start).items()}

    def error(self) -> ModelError | None:
        """The model's error since the start.

        Returns:
            Predicted and observed figures; None before the first interval.
        """
        start = self._start
        return None if start is None else error_of(start.policies[INCUMBENT], start.observed)

    def _forget(self) -> None:
        self._gone, self._points, self._t_s = [], deque(maxlen=KEPT), np.empty(0)
        self._stretch = self._at = self._start = self._today = self._until_s = None
        self.failures = {}

    def _continues(self, course: ObservedRun, parts: list[slice]) -> bool:
        """Whether what was gone through is what the journal still says."""
        if not np.array_equal(course.t_s[: len(self._t_s)], self._t_s):
            return False
        gone = len(self._gone)
        if parts[:gone] != self._gone:
            return False
        if self._stretch is None or self._at is None:
            return True
        if len(parts) == gone or parts[gone].start != self._at.start:
            return False
        part = parts[gone]
        return part.stop - part.start >= self._stretch.done and self._stretch.follow(course, part)

    def _begin(self, course: ObservedRun, part: slice) -> Stretch:
        assert self._model is not None
        config, spec = self._model.config, self._model.spec
        charges = {}
        for name in (INCUMBENT, *watched(config)):
            try:
                charges[name] = charge_of(name, spec, config, course, part)
            except DspGymError as error:
                self.failures[name] = str(error)
        self._stretch = Stretch(spec, course, part, charges, config.window, self.seeds)
        self._at = part
        return self._stretch

    def _take(self, course: ObservedRun, slot: int, driven: Driven) -> None:
        """Count one interval."""
        stretch = self._stretch
        assert stretch is not None
        self.failures |= {name: str(error) for name, error in stretch.failures.items()}
        t_s = float(course.t_s[slot])
        assert self._model is not None
        names = [INCUMBENT, *watched(self._model.config)]
        if self._start is None:
            self._start = _Period.of(t_s, names, self.seeds)
        if self._today is None or t_s // DAY_S != self._today.since_s // DAY_S:
            self._today = _Period.of(t_s, names, self.seeds)
        observed = {name: float(course.outcome[name][slot]) for name in SUMMED}
        looked = bool(np.isfinite(observed["pending_s"]))
        own = {
            name: {key: getattr(driven.outcome, key)[rows] for key in SUMMED}
            for name, rows in stretch.rows.items()
        }
        for period in (self._start, self._today):
            for name, outcome in own.items():
                period.policies[name].add(outcome, looked=looked)
            period.observed.add(observed)
        self._points.append(_point(t_s, course, slot, own, stretch, driven))
        self._t_s = course.t_s[: slot + 1]
        self._until_s = t_s + observed["seconds"]

    def _shown(self, period: _Period | None) -> dict[str, Tally]:
        """The twins that were driven all the time."""
        if period is None:
            return {}
        return {n: tally for n, tally in period.policies.items() if n not in self.failures}

    def _said(self, period: _Period) -> dict[str, Any]:
        shown = self._shown(period)
        base = period.policies[INCUMBENT]
        error = error_of(base, period.observed)
        distrust = error.beyond(self.trust)
        return {
            "since_s": period.since_s,
            "seconds": float(base.sums["seconds"].mean()),
            "error": {
                "lag_s": _finite(error.lag_s),
                "slo_share": _finite(error.slo_share),
                "cost_per_h": _finite(error.cost_per_h),
            },
            "distrust": distrust,
            "observed": {
                "cost": period.observed.sums["cost"],
                "late_s": period.observed.sums["slo_s"],
                "rescales": period.observed.sums["rescales"],
            },
            "policies": {}
            if distrust
            else {name: _compared(tally, base) for name, tally in shown.items()},
        }

    def _curves(self) -> dict[str, Any]:
        names = [INCUMBENT, *(name for name in self._shown(self._start) if name != INCUMBENT)]
        points = list(self._points)
        quantities = ("cost_per_h", "lag_s", "late", "tasks")
        return {
            "t_s": [point.t_s for point in points],
            "observed": {
                key: [_known(point.observed[key]) for point in points] for key in quantities
            },
            "policies": {
                name: {
                    key: [_known(getattr(point, key)[name]) for point in points]
                    for key in quantities
                }
                for name in names
            },
        }


def _point(
    t_s: float,
    course: ObservedRun,
    slot: int,
    own: Mapping[str, Mapping[str, Floats]],
    stretch: Stretch,
    driven: Driven,
) -> _Point:
    said, seconds = course.outcome, max(float(course.outcome["seconds"][slot]), 1.0)
    return _Point(
        t_s,
        {n: 3600 * float((o["cost"] / o["seconds"]).mean()) for n, o in own.items()},
        {n: float(o["pending_s"].mean()) for n, o in own.items()},
        {n: float((o["slo_s"] / o["seconds"]).mean()) for n, o in own.items()},
        {n: float(driven.parallelism[rows].sum(axis=1).mean()) for n, rows in stretch.rows.items()},
        {
            "cost_per_h": 3600 * float(said["cost"][slot]) / seconds,
            "lag_s": float(said["pending_s"][slot]),
            "late": float(said["slo_s"][slot]) / seconds,
            "tasks": float(course.parallelism[slot].sum()),
        },
    )


def _compared(tally: Tally, base: Tally) -> dict[str, float]:
    """Money, late seconds and rescales of a twin, and what it saves on the incumbent's twin."""
    own, other = tally.sums, base.sums
    return {
        "cost": float(own["cost"].mean()),
        "late_s": float(own["slo_s"].mean()),
        "rescales": float(own["rescales"].mean()),
        "saved": float((other["cost"] - own["cost"]).mean()),
        "later_s": float((own["slo_s"] - other["slo_s"]).mean()),
    }


def _known(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _finite(pair: tuple[float, float]) -> list[float | None]:
    return [_known(value) for value in pair]
