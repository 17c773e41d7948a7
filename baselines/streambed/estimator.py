"""The capacity estimator: the maximal sustainable throughput (MST) of one configuration.

StreamBed, section 4: a warm-up at a rate far above the job's capacity, then probes at fixed rates,
each with a cool-down before and an observation at its end, in a dichotomic search.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pydantic import Field, model_validator

from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import MetricsError
from dsp_gym.job.bursts import period_s
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import compile_jobs
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.snapshot import MetricsSnapshot

LONGEST_PERIOD_S = 300
"""Longest common period of windows to which probes are lengthened, s."""

MOST_PROBES = 40
"""Most probes of a search; by then it has halved its first rate to 1e-12 of it."""


class EstimatorConfig(ConfigModel):
    """Phases and limits of one estimation; defaults are StreamBed's for q1, q2 and q11."""

    warm_up_s: int = Field(120, ge=5, description="warm-up, s (StreamBed: 120; q5 and q8: 450)")
    warm_up_rate_per_s: float = Field(
        1e10, gt=0, description="records/s offered in the warm-up: more than any job takes"
    )
    cooldown_s: int = Field(15, ge=0, description="low rate before a probe, s: buffers run empty")
    cooldown_rate_per_source_per_s: float = Field(
        200.0, ge=0, description="records/s offered meanwhile by each source task"
    )
    injection_s: int = Field(60, ge=5, description="the probe's rate, s")
    observation_s: int = Field(30, ge=5, description="last part of the injection, observed, s")
    sustained_share: float = Field(
        0.99, gt=0, le=1, description="achieved over target rate from which a rate is sustained"
    )
    growth: float = Field(
        2.0, gt=1, description="next target over one that was sustained, while none was too high"
    )
    sensitivity: float = Field(
        0.01, ge=0, lt=1, description="the search ends when the next target differs by less"
    )
    timeout_s: int = Field(
        600, ge=10, description="no probe begins later, warm-up counted, s (q5 and q8: 900)"
    )

    @model_validator(mode="after")
    def _observation_fits(self) -> EstimatorConfig:
        if self.observation_s > self.injection_s:
            raise ValueError("observation_s is the last part of injection_s, not longer")
        if self.timeout_s <= self.warm_up_s:
            raise ValueError("timeout_s counts the warm-up: it must leave time for probes")
        return self


@dataclass(frozen=True, slots=True)
class VertexRates:
    """Observed rates of one vertex other than a source."""

    ratio: float  # its input rate over the rate of all sources
    true_rate_per_task_per_s: float
    busy_share: float  # 0..1, mean over its tasks


@dataclass(frozen=True, slots=True)
class ObservedRates:
    """Rates over one observation."""

    rate_per_s: float  # achieved by all sources
    vertices: dict[str, VertexRates]


@dataclass(frozen=True, slots=True)
class Probe:
    """One target rate and the achieved rate."""

    target_per_s: float
    achieved_per_s: float
    sustained: bool


@dataclass(frozen=True, slots=True)
class Estimate:
    """The MST of a configuration, with the observation at that rate."""

    mst_per_s: float
    seen: ObservedRates
    probes: tuple[Probe, ...]
    seconds: float  # time of the testbed


class Testbed(Protocol):
    """A place where jobs run under adjustable rates: simulated, or a real cluster."""

    spec: JobSpec

    def deploy(self, configuration: Configuration) -> None:
        """Start the job in a configuration, without state."""

    def probe(self, phases: list[tuple[float, int]], observation_s: int) -> ObservedRates:
        """Offer rates (records/s, seconds) one after the other.

        Records that a source could not emit are dropped, not emitted later.

        Returns:
            Rates over the last `observation_s` seconds.
        """


def estimate(
    testbed: Testbed,
    configuration: Configuration,
    config: EstimatorConfig | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Estimate:
    """Find the MST of a configuration.

    Probes are observed over whole periods of the job's windows, so that bursts count as they do in
    the long run (`dsp-gym plan` counts them the same).

    The first target is the rate achieved at the end of the warm-up. A warm-up that achieves none is
    repeated; after the time limit the job file's rate is the first target. The search ends when the
    next target is close to the last, or when time is up; but not before a rate was sustained.

    Args:
        testbed: Runs the job.
        configuration: The configuration.
        config: Phases and limits; None: StreamBed's.
        tell: Reports each probe.

    Returns:
        The MST, records/s, and all probes.

    Raises:
        MetricsError: No rate was sustained, however low.
    """
    c = in_whole_periods(config or EstimatorConfig(), testbed.spec)
    testbed.deploy(configuration)
    sources = sum(v.parallelism for v in testbed.spec.vertices if v.kind == "source")
    cooldown = (c.cooldown_rate_per_source_per_s * sources, c.cooldown_s)
    elapsed_s, target = _warmed_up(testbed, c)
    until_s = elapsed_s + c.timeout_s - c.warm_up_s
    low, high = 0.0, math.inf
    best: ObservedRates | None = None
    probes: list[Probe] = []
    while (best is None or elapsed_s < until_s) and len(probes) < MOST_PROBES:
        seen = testbed.probe([cooldown, (target, c.injection_s)], c.observation_s)
        elapsed_s += c.cooldown_s + c.injection_s
        sustained = seen.rate_per_s >= c.sustained_share * target
        probes.append(Probe(target, seen.rate_per_s, sustained))
        tell(f"{target:,.4g}/s offered, {seen.rate_per_s:,.4g}/s achieved")
        if sustained:
            low, best = target, seen
        else:
            high = target
        last, target = target, c.growth * target if math.isinf(high) else (low + high) / 2
        if best is not None and abs(target - last) <= c.sensitivity * last:
            break
    if best is None:
        raise MetricsError(
            f"job '{testbed.spec.job}' sustained no rate in {len(probes)} probes",
            value=target,
            remedy="Look whether the job takes records at all: dsp-gym plan JOB, or Flink's page.",
        )
    return Estimate(best.rate_per_s, best, tuple(probes), elapsed_s)


def _warmed_up(testbed: Testbed, c: EstimatorConfig) -> tuple[float, float]:
    """Warm the job up; return the seconds it took, and the first target, records/s."""
    elapsed_s, target = 0.0, 0.0
    while target == 0 and elapsed_s < c.timeout_s:
        # A window that holds its results back may stop reading for minutes: it is not warm yet.
        warm = testbed.probe(
            [(c.warm_up_rate_per_s, c.warm_up_s)], min(c.observation_s, c.warm_up_s)
        )
        elapsed_s, target = elapsed_s + c.warm_up_s, warm.rate_per_s
    return elapsed_s, target or testbed.spec.source.rate_per_s  # still saturated: begin with less


def in_whole_periods(config: EstimatorConfig, spec: JobSpec) -> EstimatorConfig:
    """Lengthen observations to whole periods of the job's windows, and injections with them.

    Returns:
        The configuration; unchanged where the job has no window that fires, or where all of them
        fire together less often than every `LONGEST_PERIOD_S`.
    """
    period = int(period_s(compile_jobs([spec]), 0))
    if period == 0 or period > LONGEST_PERIOD_S:
        return config
    observed = period * math.ceil(config.observation_s / period)
    settling = period * math.ceil((config.injection_s - config.observation_s) / period)
    timeout = config.timeout_s
    if observed + settling > config.injection_s:  # as many probes as without
        timeout += MOST_PROBES // 4 * (observed + settling - config.injection_s)
    return config.model_copy(
        update={
            "observation_s": observed,
            "injection_s": observed + settling,
            "timeout_s": timeout,
        }
    )


def observation_of(snapshot: MetricsSnapshot, *, read: bool = False) -> ObservedRates:
    """Compute the rates of the single job in a snapshot.

    True rate of a task: the vertex's input rate over the busy time of all its tasks. A task that
    was never busy counts as busy for 1 ms/s, as in StreamBed's code.

    Args:
        snapshot: Snapshot of one job.
        read: Count as achieved the input of the vertices after the sources, not the sources'
            output. The buffers between hold seconds of work, so until they are full a source seems
            to achieve more than the job carries. StreamBed's phases are long enough to ignore that,
            short ones are not.

    Returns:
        Achieved source rate and the rates of every other vertex.

    Raises:
        MetricsError: No source rate was observed.
    """
    topology = snapshot.topology
    spec, arriving = topology.spec(0), snapshot.records_in_per_s[0]
    kinds = [vertex.kind for vertex in spec.topological_order()]
    achieved = sum(float(arriving[v]) for v, kind in enumerate(kinds) if kind == "source")
    if not math.isfinite(achieved):
        raise MetricsError(
            f"job '{spec.job}': no source rate was observed",
            remedy="Observe for longer; see whether the job runs and its metrics arrive.",
        )
    if read:
        achieved *= _share_read(snapshot)
    vertices = {}
    for v, name in enumerate(topology.names(0)):
        if kinds[v] == "source":
            continue
        rate, busy = float(arriving[v]), float(snapshot.busy_ms_per_s[0, v])
        busy_share = max(busy, 1.0) / 1000.0 if math.isfinite(busy) else math.nan
        tasks = int(snapshot.parallelism[0, v])
        vertices[name] = VertexRates(
            rate / achieved if achieved > 0 else 0.0, rate / (busy_share * tasks), busy_share
        )
    return ObservedRates(achieved, vertices)


def _share_read(snapshot: MetricsSnapshot) -> float:
    """Return the smallest share of the sources' output that a vertex after them read, at most 1."""
    topology, arriving = snapshot.topology, snapshot.records_in_per_s[0]
    spec, names = topology.spec(0), topology.names(0)
    share = 1.0
    for vertex in spec.vertices:
        upstream = [edge.from_ for edge in vertex.inputs]
        if upstream and all(spec.vertex(name).kind == "source" for name in upstream):
            emitted = sum(float(arriving[names.index(name)]) for name in upstream)
            if emitted > 0:
                share = min(share, float(arriving[names.index(vertex.name)]) / emitted)
    return share
