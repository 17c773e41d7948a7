"""The counterfactual evaluation of one journal, from reading it to the verdict."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import Field

from dsp_gym.config.model import ConfigModel
from dsp_gym.control.config import RunConfig
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.errors import ConfigError, DspGymError
from dsp_gym.job.spec import CURRENCY, JobSpec
from dsp_gym.whatif.journal import ObservedRun, read_course
from dsp_gym.whatif.model_error import (
    Claim,
    ModelError,
    Trust,
    claim_of,
    figures_of,
    model_error,
    with_ranges,
)
from dsp_gym.whatif.policies import (
    charge_of,
    configuration_of,
    model_of,
    watched,
)
from dsp_gym.whatif.stretch import Predicted, forward
from dsp_gym.whatif.uncertainty import capacity_factors, with_capacity
from dsp_gym.whatif.validity import validity_notes
from dsp_gym.whatif.verdict import Verdict, judge

__all__ = ["CounterfactualEvaluation", "CounterfactualConfig", "evaluate_journal"]

SCHEMA = "dsp-gym/shadow-scorecard/1"

OnPrediction = Callable[[str, int, int], None]
"""Called before each prediction: the policy, predictions made, predictions in all."""


class CounterfactualConfig(ConfigModel):
    """How the model predicts."""

    seeds: int = Field(16, ge=2, le=1024, description="predictions of each policy")
    trust: Trust = Field(
        default_factory=Trust,
        description="the largest errors of a trusted model",
    )


@dataclass(frozen=True, slots=True)
class Line:
    """The job over time for the plots: observed, and predicted for each policy."""

    t_s: tuple[float, ...]
    observed: dict[str, tuple[float, ...]]  # cost/h, lag, latency, subtasks, load
    predicted: dict[str, dict[str, tuple[float, ...]]]  # policy -> the same but for the load, mean
    slo_latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class CounterfactualEvaluation:
    """The observed run, the prediction for each policy, and the verdicts."""

    job: str
    days: float
    coverage: float
    decisions: int
    held: int
    segments: int
    error: ModelError
    claims: tuple[Claim, ...]
    verdicts: dict[str, Verdict]
    line: Line
    notes: tuple[str, ...]
    currency: str = CURRENCY  # of all costs

    def to_json(self) -> str:
        """The document as JSON text; numbers that are not finite are null.

        Returns:
            Indented text that ends with a newline; its key `schema` names the version.
        """
        document = {
            "schema": SCHEMA,
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)},
        }
        return json.dumps(_plain(document), indent=2, allow_nan=False) + "\n"


def evaluate_journal(
    journal: str | Path,
    config: RunConfig | None = None,
    *,
    job: str | None = None,
    how: CounterfactualConfig | None = None,
    progress: OnPrediction = lambda policy, done, of: None,
) -> CounterfactualEvaluation:
    """Evaluates every policy of one job of a journal.

    Args:
        journal: its folder.
        config: the run's configuration; None: the one in the journal.
        job: name of the job; None: the only one.
        how: how the model predicts.
        progress: called before each prediction.

    Returns:
        The observed figures, the claim about each policy, and the verdict on it.

    Raises:
        SchemaError: The journal cannot be read or holds nothing on the job.
        ConfigError: No configuration is known, or the model is of another job.
    """
    how = how or CounterfactualConfig()
    course = read_course(journal, job)
    config = config or configuration_of(course, journal)
    spec = model_of(config, course, journal)
    parts = course.segments()
    if not parts:
        raise ConfigError(
            f"holds no stretch of ten decisions with known outcomes; there are {len(course)} "
            "decisions",
            file=journal,
            remedy="Watch for longer.",
        )
    names = watched(config)
    done = 0

    def run(policy: str, model: JobSpec) -> list[Predicted]:
        nonlocal done
        found = []
        for part in parts:
            progress(policy, done, max(done + 1, (len(names) + 1) * len(parts)))
            charge = charge_of(policy, model, config, course, part)
            found.append(
                forward(model, course, part, *charge, window=config.window, seeds=how.seeds)
            )
            done += 1
        return found

    incumbent = run(INCUMBENT, spec)
    error = model_error(course, parts, incumbent)
    base = figures_of(incumbent)
    # Near saturation some per cent of capacity decide what is late: then both ends are run, too.
    factors = capacity_factors(spec) if error.beyond(how.trust) else None
    models = [with_capacity(spec, factor) for factor in factors or ()]
    errors, replays = [], []  # with each model; of its predictions only the figures are kept
    for model in models:
        replay = run(INCUMBENT, model)
        errors.append(model_error(course, parts, replay))
        replays.append(figures_of(replay))
    error = with_ranges(error, errors)
    if error.beyond(how.trust):
        models, replays = [], []  # no claim is made
    predicted: dict[str, list[Predicted]] = {INCUMBENT: incumbent}
    at_ends = {INCUMBENT: replays}
    notes = course.notes()
    for name in names:
        try:
            predicted[name] = run(name, spec)
            at_ends[name] = [figures_of(run(name, model)) for model in models]
        except DspGymError as problem:
            notes.append(f"{name}: {problem}")
            predicted.pop(name, None)
    notes += validity_notes(spec, course, predicted)
    claims = _with_regret(
        [
            claim_of(
                name,
                figures_of(found),
                base,
                error,
                how.trust,
                course.decided.get(name),
                course,
                list(zip(at_ends[name], replays, strict=True)),
            )
            for name, found in predicted.items()
        ]
    )
    return CounterfactualEvaluation(
        job=course.job,
        days=course.days,
        coverage=course.coverage,
        decisions=len(course),
        held=course.held,
        segments=len(parts),
        error=error,
        claims=claims,
        verdicts={
            one.policy: judge(course, one, error, config.gate, how.trust)
            for one in claims
            if one.policy != INCUMBENT
        },
        line=_line(course, parts, predicted, float(spec.slo.latency_s)),
        notes=tuple(notes),
        currency=spec.prices.currency,
    )


def _with_regret(claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """Adds each policy's cost above that of the cheapest policy no later than the incumbent."""
    costs = {one.policy: one.figures["cost_per_h"].value for one in claims if one.figures}
    good = [costs[one.policy] for one in claims if one.figures and one.figures["later"].value <= 0]
    least = min(good, default=None)
    if least is None:
        return tuple(claims)
    return tuple(
        replace(one, regret_per_h=max(0.0, costs[one.policy] - least)) if one.figures else one
        for one in claims
    )


def _line(
    course: ObservedRun,
    parts: Sequence[slice],
    predicted: dict[str, list[Predicted]],
    slo_latency_s: float,
) -> Line:
    rows = np.concatenate([np.arange(part.start, part.stop) for part in parts])
    step = max(1, len(rows) // 600)  # no more points than a plot can show
    shown = rows[::step]
    seconds = np.maximum(course.outcome["seconds"][shown], 1.0)
    found = {}
    for name, several in predicted.items():
        cost = np.concatenate(
            [(3600 * p.outcome["cost"] / p.outcome["seconds"]).mean(axis=1) for p in several]
        )
        lag = np.concatenate([p.outcome["pending_s"].mean(axis=1) for p in several])
        latency = np.concatenate([p.outcome["latency_p95_s"].mean(axis=1) for p in several])
        tasks = np.concatenate([p.parallelism.sum(axis=2).mean(axis=1) for p in several])
        found[name] = {
            key: tuple(values[::step].tolist())
            for key, values in (
                ("cost_per_h", cost),
                ("lag_s", lag),
                ("latency_p95_s", latency),
                ("subtasks", tasks),
            )
        }
    return Line(
        t_s=tuple((course.t_s[shown] - course.t_s[0]).tolist()),
        observed={
            "cost_per_h": tuple((3600 * course.outcome["cost"][shown] / seconds).tolist()),
            "lag_s": tuple(course.outcome["pending_s"][shown].tolist()),
            "latency_p95_s": tuple(course.outcome["latency_p95_s"][shown].tolist()),
            "load_per_s": tuple((course.outcome["arrived"][shown] / seconds).tolist()),
            "subtasks": tuple(course.parallelism[shown].sum(axis=1).astype(float).tolist()),
        },
        predicted=found,
        slo_latency_s=slo_latency_s,
    )


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
