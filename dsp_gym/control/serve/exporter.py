"""The status of live loops as Prometheus metrics, read at every scrape."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from dsp_gym.arrays import Ints
from dsp_gym.backends.upstream.deadlines import UPSTREAMS
from dsp_gym.control.guarded_policy import FAULTS, Judgement
from dsp_gym.control.modes import INCUMBENT, MODES
from dsp_gym.control.serve.boards import Boards
from dsp_gym.control.serve.conditions import CONDITIONS
from dsp_gym.control.serve.counts import BUCKETS_S, DECIDED
from dsp_gym.control.serve.status import StatusBoard, costs
from dsp_gym.control.serve.versions import model_sha256
from dsp_gym.control.turn import Turn
from dsp_gym.errors import MissingExtraError
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.loop.watchers import WATCHER_FAILURES
from dsp_gym.version import __version__

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
except ModuleNotFoundError:
    raise MissingExtraError("kubernetes", "serving metrics") from None

Sample = tuple[tuple[str, ...], float]
"""Values of the labels, and the number."""

_ENDS = ("reached", "failed", "restored", "left", "alarm")
"""Steps of an actuator that say what became of a change."""

_HELD = "Decisions at which nothing could be asked of the job"


def labels_of(board: StatusBoard) -> dict[str, str]:
    """List the labels that every metric has.

    Returns:
        Value by label: job and namespace.
    """
    return {"namespace": board.run.backend.platform.namespace, "job": board.run.writer.job}


class Exporter:
    """A registry with everything that the loops know.

    Recommendations are absent until the metrics window is full, and while the job is not seen: an
    old one would look like advice.
    """

    def __init__(self, boards: Boards) -> None:
        self._boards = boards
        self.registry: CollectorRegistry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def text(self) -> bytes:
        """Write all metrics in the text format.

        Returns:
            UTF-8 text of one scrape.
        """
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Give the registry all metrics, at every scrape.

        Yields:
            Metric families with the samples of every job, each family once.
        """
        families: dict[str, Metric] = {}
        for board in self._boards.all().values():
            with board.lock:
                _add(
                    families,
                    self._state(board),
                    self._counters(board),
                    self._seconds(board),
                    self._vertices(board),
                )
            _add(families, self._job(board), self._verdict(board), self._twins(board))
        _add(families, self._not_watched(), self._release(), self._faults(), self._upstreams())
        yield from families.values()

    def _not_watched(self) -> Iterator[Metric]:
        """Show the jobs that should be watched and cannot be."""
        for name, one in self._boards.troubles().items():
            common = {"namespace": one.namespace, "job": name}
            yield self._family(
                common, "condition", "1: the condition is True", ["condition"], [(("Ready",), 0)]
            )
            yield self._family(
                common,
                "held",
                _HELD,
                ["reason"],
                [(("start",), one.times)],
                counted=True,
            )

    def _release(self) -> Iterator[Metric]:
        """Show that this process runs, whether it has jobs or none."""
        about = "Release that runs"
        yield self._family({}, "build_info", about, ["version"], [((__version__,), 1)])

    def _faults(self) -> Iterator[Metric]:
        """Count the faults of this process: a client's jobs have no board."""
        if times := FAULTS.times():
            yield self._family(
                {},
                "faults_beside_decisions",
                "Forecasts, plans and memories that failed; the decisions beside them stand",
                ["policy", "what"],
                times.items(),
                counted=True,
            )
        if failed := WATCHER_FAILURES.times():
            yield self._family(
                {},
                "watcher_failures",
                "Failures of threads that watch a lease, rights or resources; each began again",
                ["watcher"],
                _single(Counter(failed)),
                counted=True,
            )

    def _upstreams(self) -> Iterator[Metric]:
        """Count the late questions of this process: several jobs may share a server."""
        late = UPSTREAMS.late()
        for name, about, samples, counted in (
            (
                "upstream_late",
                "Questions to a server without a whole answer in time",
                [((upstream,), calls.ever) for upstream, calls in late.items()],
                True,
            ),
            (
                "upstream_abandoned",
                "Threads that late questions to a server still keep",
                [((upstream,), calls.now) for upstream, calls in late.items()],
                False,
            ),
        ):
            if late:
                yield self._family({}, name, about, ["upstream"], samples, counted=counted)

    def _state(self, board: StatusBoard) -> Iterator[Metric]:
        run, turn, conditions = board.run, board.turn, board.conditions
        seen = None if turn is None else turn.snapshot
        fill = 0.0 if seen is None else float(seen.window_fill[0])
        ready = board.is_ready
        families: list[tuple[str, str, list[str], list[Sample]]] = [
            (
                "mode",
                "Mode of the loop",
                ["mode"],
                [((mode,), int(mode == run.permission.mode)) for mode in MODES],
            ),
            (
                "policy_info",
                "Policies that are asked",
                ["policy", "version", "sha256"],
                [((name, v.version, v.sha256), 1) for name, v in board.versions.items()],
            ),
            (
                "model_info",
                "Model of the job",
                ["job_file", "sha256"],
                [((run.spec.job, model_sha256(run.spec)), 1)],
            ),
            (
                "condition",
                "1: the condition is True",
                ["condition"],
                [
                    ((name,), int(conditions[name].status == "True" if name != "Ready" else ready))
                    for name in CONDITIONS
                ],
            ),
            (
                "paused",
                "1: nothing may be enacted",
                [],
                [((), int(conditions["Paused"].status == "True"))],
            ),
            ("rescaling", "1: a change is under way", [], [((), int(_is_pending(board)))]),
            ("window_fill", "Share of the metrics window covered", [], [((), fill)]),
        ]
        if math.isfinite(board.data_age_s):
            families.append(
                ("data_age_seconds", "Age of the newest sample", [], [((), board.data_age_s)])
            )
        if turn is not None:
            others: list[Sample] = [
                ((one.policy,), int(one.replaced_by is not None or one.failure is not None))
                for one in turn.judgements
                if one.policy != INCUMBENT
            ]
            families.append(("fallback_active", "1: another policy decided", ["policy"], others))
        for family in families:
            yield self._family(labels_of(board), *family)

    def _counters(self, board: StatusBoard) -> Iterator[Metric]:
        counts, common = board.counts, labels_of(board)
        failed, faults = "Decisions a policy could not make itself", counts.failures.items()
        answers = "Answers of Flink, Prometheus or Kubernetes that failed"
        for name, about, labels, samples in (
            ("decisions", "Decisions of each policy", ["policy"], _single(counts.decisions)),
            ("held", _HELD, ["reason"], _single(counts.held)),
            (
                "guard_trips",
                "Decisions a guardrail changed",
                ["policy", "guardrail"],
                counts.trips.items(),
            ),
            ("policy_failures", failed, ["policy", "cause"], faults),
            ("api_errors", answers, ["api", "reason"], self._api_errors(board).items()),
            ("writes", "Changes asked of the job", ["outcome"], _single(_writes(board))),
        ):
            yield self._family(common, name, about, labels, samples, counted=True)

    def _api_errors(self, board: StatusBoard) -> Counter[tuple[str, str]]:
        """Count failed answers by API and kind: those of the loop and of the watch beside it."""
        found = Counter(board.counts.api_errors)
        for reason, times in dict(board.run.backend.platform.errors()).items():
            found["kubernetes", reason] += times
        return found

    def _seconds(self, board: StatusBoard) -> Iterator[Metric]:
        common = labels_of(board)
        family = HistogramMetricFamily(
            "dsp_gym_decision_seconds",
            "Time one decision of a policy took, guardrails included",
            labels=[*common, "policy"],
        )
        for policy, took in board.counts.seconds.items():
            edges = [*(f"{edge:g}" for edge in BUCKETS_S), "+Inf"]
            filled = list(zip(edges, accumulate(took.buckets), strict=True))
            family.add_metric([*common.values(), policy], filled, took.total)
        yield family

    def _vertices(self, board: StatusBoard) -> Iterator[Metric]:
        turn, common = board.turn, labels_of(board)
        if turn is None or turn.snapshot is None:
            return
        seen = turn.snapshot
        names = list(enumerate(seen.topology.names(0)))
        running = {"parallelism": seen.parallelism, "memory_level": seen.memory_level}
        for what, values in running.items():
            samples = [((name,), int(values[0, v])) for v, name in names]
            about = "The running configuration"
            yield self._family(common, f"current_{what}", about, ["vertex"], samples)
        if board.is_full:
            yield from self._recommended(turn, common, names)

    def _recommended(
        self, turn: Turn, common: dict[str, str], names: list[tuple[int, str]]
    ) -> Iterator[Metric]:
        asked = [one for one in turn.judgements if one.policy != INCUMBENT]
        baselines = [one for one in turn.judgements if one.policy == INCUMBENT]
        level = "Memory level the policy wants; -1: no managed memory"
        for family, about, by, given in (
            ("recommended_parallelism", "What the policy wants", "policy", asked),
            ("allowed_parallelism", "What the guardrails leave of it", "policy", asked),
            ("recommended_memory_level", level, "policy", asked),
            ("baseline_parallelism", "What the incumbent runs, or advises", "baseline", baselines),
        ):
            samples = [
                ((name, one.policy), int(_values(one, family)[0, v]))
                for one in given
                for v, name in names
            ]
            yield self._family(common, family, about, ["vertex", by], samples)
        prices = [(one.policy, costs(turn, one)) for one in turn.judgements]
        yield self._family(
            common,
            "predicted_cost_per_hour",
            "Money per hour, in the currency of the label, of what the guardrails leave",
            ["policy", "currency"],
            [((name, price["currency"]), price["cost_per_hour"]) for name, price in prices],
        )

    def _job(self, board: StatusBoard) -> Iterator[Metric]:
        """Show the running job: its cost, load and lateness; what is not known is absent."""
        found, turn, common = board.glance(), board.turn, labels_of(board)
        if turn is None:
            return
        late_since_s = found.late_since_s
        late_s = 0.0 if late_since_s is None else turn.t_s - late_since_s
        cost = found.cost_per_month
        if cost is not None and found.currency is not None:
            yield self._family(
                common,
                "running_cost_per_month",
                "Money per month of 730 hours, in the currency of the label, of what runs",
                ["currency"],
                [((found.currency,), cost)],
            )
        for name, about, value in (
            ("load_records_per_second", "Records offered to the sources", found.load_per_s),
            ("backlog_seconds", "Records that wait, in seconds of arrivals", found.lag_s),
            ("latency_p95_seconds", "End-to-end latency, 95th percentile", found.latency_p95_s),
            ("slo_latency_seconds", "Bound of the latency", found.slo_latency_s),
            ("late_for_seconds", "How long the job has been late; 0: it is in time", late_s),
            ("late_share", "Late share of the last decisions, at most 720", found.late_share),
        ):
            if value is not None:
                yield self._family(common, name, about, [], [((), value)])

    def _verdict(self, board: StatusBoard) -> Iterator[Metric]:
        """Show what the best policy saves; nothing without a trusted verdict."""
        found, currency, common = board.verdict(), board.glance().currency, labels_of(board)
        if found is None or found.saving is None or found.policy is None or currency is None:
            return
        yield self._family(
            common,
            "saving_per_month",
            "Money a month that the best policy saves: expected, and the 95 % interval",
            ["policy", "verdict", "bound", "currency"],
            [
                ((found.policy, found.word or "", bound, currency), value)
                for bound, value in found.saving.model_dump().items()
            ],
        )
        yield self._family(
            common,
            "claimed_per_month",
            "Money a month that is certain to be saved: 0 until every condition holds",
            ["policy", "currency"],
            [((found.policy, currency), found.claimed_per_month)],
        )

    def _twins(self, board: StatusBoard) -> Iterator[Metric]:
        """Show the figures of the twins; none where the model is wrong about the incumbent."""
        document, common = board.twins(), labels_of(board)
        periods: dict[str, Any] = document["periods"]
        if not periods:
            return
        yield self._family(
            common,
            "twins_until_seconds",
            "Unix time up to which twins were driven",
            [],
            [((), document["until_s"])],
        )
        for name, about, key in (
            ("twin_cost", "Money, in the currency of the label, of a policy's twin", "cost"),
            ("twin_late_seconds", "Seconds a policy's twin was late", "late_s"),
            ("twin_rescales", "Rescales of a policy's twin", "rescales"),
        ):
            own = ["currency"] if key == "cost" else []
            values = tuple(document[label] for label in own)
            yield self._family(
                common,
                name,
                f"{about}, since the start or today",
                ["policy", "period", *own],
                [
                    ((policy, period, *values), one[key])
                    for period, said in periods.items()
                    for policy, one in said["policies"].items()
                ],
            )
        yield self._family(
            common,
            "twin_model",
            "What the model says of the incumbent, and what was observed",
            ["quantity", "of", "period"],
            [
                ((quantity, of, period), value)
                for period, said in periods.items()
                for quantity, pair in said["error"].items()
                for of, value in zip(("model", "observed"), pair, strict=True)
                if value is not None
            ],
        )
        yield self._family(
            common,
            "twin_trusted",
            "1: the model's error on the incumbent is within its bounds",
            ["period"],
            [((period,), int(not said["distrust"])) for period, said in periods.items()],
        )

    def _family(
        self,
        common: dict[str, str],
        name: str,
        about: str,
        labels: list[str],
        samples: Iterable[Sample],
        *,
        counted: bool = False,
    ) -> Metric:
        kind = CounterMetricFamily if counted else GaugeMetricFamily
        family = kind(f"dsp_gym_{name}", about, labels=[*common, *labels])
        for values, number in samples:
            family.add_metric([*common.values(), *values], number)
        return family


def _is_pending(board: StatusBoard) -> bool:
    actuator = board.run.backend.actuator
    return actuator is not None and bool(actuator.status()[0] == ActuatorStatus.PENDING)


def _writes(board: StatusBoard) -> Counter[str]:
    """Count changes: those decided on, and what the actuator made of them."""
    steps = board.run.writer.steps
    # A counter that begins at 1 has not increased, so every outcome is told from 0 on.
    found = Counter(dict.fromkeys(DECIDED, 0))
    found.update(board.counts.writes)
    found.update({name: steps[name] for name in _ENDS})
    return found


def _single(times: Counter[str]) -> Iterable[Sample]:
    return (((value,), number) for value, number in times.items())


def _values(one: Judgement, family: str) -> Ints:
    """Pick the numbers of a judgement that a metric shows."""
    if not family.startswith("recommended"):
        return one.guarded.parallelism
    proposed = one.guarded.proposed
    return proposed.parallelism if family.endswith("parallelism") else proposed.memory_level


def _add(families: dict[str, Metric], *more: Iterable[Metric]) -> None:
    """Put samples of the same metric together: a text holds each metric once."""
    for family in (family for found in more for family in found):
        known = families.setdefault(family.name, family)
        if known is not family:
            known.samples.extend(family.samples)
