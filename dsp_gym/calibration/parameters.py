"""The numbers of a job file a calibration may set, each with its prior.

The prior's middle is the job file's value; its width is that value's assumed error. A number the
recordings cannot fix keeps it. Positive numbers are fitted as logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.job.spec import Efficiency, JobSpec, State, Vertex

EfficiencyForm = Literal["linear", "power", "contention"]
EFFICIENCY_FORMS: tuple[EfficiencyForm, ...] = ("linear", "power", "contention")
"""Forms of the efficiency curve that are tried: none or one parameter each."""

CPU_SD = 0.45
"""Log error of a job file's CPU time per record. It is the best known cost of a record: what three
runs cannot tell apart belongs to state, whose costs depend on the machine."""
CHURN, INDEX_HITS, MISS_CONTENTION = (0.36, 0.1), (0.73, 0.2), (0.1, 0.15)
"""Mean and deviation where the job file says nothing, from recorded jobs that update RocksDB, all
their runs fitted: churn 0.36 and 0.37, index lookups 0.74 and 0.73 per read (`flink-runs-update`,
`flink-runs-direct-update`); contention 0 to 0.30 per further task."""

LEVEL0_INDEX_HITS = (0.5, 0.3)
"""The same per lookup where lookups in level 0 are counted: between none and one."""

READ_SPREAD = "read_spread"
"""Log spread of reads from disk: belongs to the measurement, not to the job file."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number that is fitted."""

    vertex: str
    field: str  # of the vertex, its state or its efficiency; or READ_SPREAD
    prior: float
    sd: float  # of the prior, on the scale that is fitted
    log: bool  # fitted as a logarithm
    low: float
    high: float
    unit: str

    @property
    def name(self) -> str:
        """Vertex and field."""
        return f"{self.vertex}.{self.field}"

    def encode(self, value: float) -> float:
        """The value on the scale of the fit.

        Returns:
            The natural logarithm where the parameter is fitted on a log scale, else the value
            itself.
        """
        return math.log(value) if self.log else value

    def decode(self, x: float) -> float:
        """The value in the unit of the job file.

        Returns:
            The value, clipped to the parameter's bounds.
        """
        return float(min(self.high, max(self.low, math.exp(x) if self.log else x)))


def free_parameters(
    spec: JobSpec, form: EfficiencyForm, seen: Sequence[SteadyPart]
) -> list[Parameter]:
    """List the numbers to fit: every cost, and those that the seen configurations can tell apart.

    Returns:
        Parameters with their priors and bounds.
    """
    found = []
    for vertex in spec.topological_order():
        found.append(
            _positive(vertex.name, "cpu_us_per_record", vertex.cpu_us_per_record, CPU_SD, "us")
        )
        several = len({o.parallelism.get(vertex.name, 1) for o in seen}) > 1
        if form != "linear" and several:
            prior = vertex.efficiency.a if vertex.efficiency.form == form else 0.0
            found.append(Parameter(vertex.name, "efficiency.a", prior, 0.1, False, 0.0, 1.0, ""))
        if vertex.state is not None:
            found += _of_state(vertex, several)
    return found


def _positive(vertex: str, field: str, prior: float, sd: float, unit: str) -> Parameter:
    return Parameter(vertex, field, prior, sd, True, prior * 1e-3, prior * 1e3, unit)


def _of_state(vertex: Vertex, several: bool) -> list[Parameter]:
    state = vertex.state
    assert state is not None
    name = vertex.name
    found = [
        _positive(name, "state.space_factor", state.space_factor, 0.3, ""),
        Parameter(name, "state.unshared_mib", state.unshared_mib, 3.0, False, 0.0, 1e3, "MiB"),
    ]
    if state.reads > 0:
        found += [
            _positive(name, "state.read_hit_us", state.read_hit_us, 0.7, "us"),
            _positive(name, "state.read_miss_us", state.read_miss_us, 1.0, "us"),
            _positive(name, f"state.{READ_SPREAD}", 0.6, 0.5, "log"),
        ]
        if several:
            middle, sd = _known(state, "miss_contention", MISS_CONTENTION, 0.2)
            found.append(
                Parameter(name, "state.miss_contention", middle, sd, False, 0.0, 2.0, "per subtask")
            )
    if state.writes > 0:
        found.append(_positive(name, "state.write_us", state.write_us, 0.7, "us"))
        if state.compaction_us > 0:
            found.append(_positive(name, "state.compaction_us", state.compaction_us, 0.7, "us"))
    if state.reads > 0 and state.writes > 0:
        compacted = state.level0_files > 0  # then what flushes replace is in the form
        if not compacted:
            churn = _known(state, "churn", CHURN, 0.3)
            found.append(Parameter(name, "state.churn", *churn, False, 0.0, 0.95, "share"))
        others = LEVEL0_INDEX_HITS if compacted else INDEX_HITS
        index = _known(state, "index_hits", others, 0.5)
        found += [
            Parameter(name, "state.index_hits", *index, False, 0.0, 5.0, "per read"),
        ]
        if state.memtable_coverage > 0:  # 0: the file says MemTables serve no reads
            found.append(
                Parameter(
                    name,
                    "state.memtable_coverage",
                    state.memtable_coverage,
                    0.4,
                    True,
                    0.05,
                    4.0,
                    "",
                )
            )
    return found


def _known(state: State, field: str, others: tuple[float, float], sd: float) -> tuple[float, float]:
    """Middle and deviation of a prior: the job file's value where it gives one, else others'."""
    return (float(getattr(state, field)), sd) if field in state.model_fields_set else others


def with_parameters(
    spec: JobSpec, values: Mapping[Parameter, float], form: EfficiencyForm = "linear"
) -> tuple[JobSpec, dict[str, float]]:
    """Set fitted numbers.

    Returns:
        The job, and the read spread by vertex, which no job file holds.
    """
    spreads, vertices = {}, []
    for vertex in spec.vertices:
        own = {p.field: value for p, value in values.items() if p.vertex == vertex.name}
        update: dict[str, object] = {}
        if "cpu_us_per_record" in own:
            update["cpu_us_per_record"] = own["cpu_us_per_record"]
        if "efficiency.a" in own:
            update["efficiency"] = Efficiency(form=form, a=own["efficiency.a"])
        state = {key.removeprefix("state."): value for key, value in own.items() if "state." in key}
        if READ_SPREAD in state:
            spreads[vertex.name] = state.pop(READ_SPREAD)
        if state and vertex.state is not None:
            update["state"] = vertex.state.model_copy(update=state)
        vertices.append(vertex.model_copy(update=update))
    return spec.model_copy(update={"vertices": tuple(vertices)}), spreads
