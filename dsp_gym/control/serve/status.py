"""The status of a live loop, `dsp-gym/status/1`: running configuration, targets and reasons."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable

from dsp_gym.arrays import finite
from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.beside import TWINS_SCHEMA, TwinsFile
from dsp_gym.control.guarded_policy import Judgement
from dsp_gym.control.overview import JobLine
from dsp_gym.control.serve.conditions import FULL, Conditions
from dsp_gym.control.serve.counts import Counts
from dsp_gym.control.serve.history import Glance, StatusHistory
from dsp_gym.control.serve.versions import version_of
from dsp_gym.control.turn import Turn
from dsp_gym.control.verdict_summary import VerdictSummary
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.job.validity import validity_of
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.snapshot import FAILED, RUNNING, SAVEPOINTING, MetricsSnapshot
from dsp_gym.loop.wire import Document, costs_to_json

STATUS_SCHEMA = "dsp-gym/status/1"

KEPT = 50
"""Decisions that the status lists."""

SILENT_INTERVALS = 2.0
"""Intervals without a decision after which the job counts as not seen."""

LONGEST = 600
"""Characters of a reason in the status; the journal has all of it."""


class StatusBoard:
    """Takes in a loop's decisions and says how it stands; may be read from other threads.

    Args:
        run: the loop.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        run: JobAutoscaler,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run, self.counts = run, Counts()
        self._clock = clock
        self._decided_s = self._sign_s = clock()
        self.turn: Turn | None = None
        self.data_age_s = math.nan
        self._newest_s = math.nan  # when the newest sample that was ever seen was taken
        self.lock = threading.Lock()
        self.conditions = Conditions(0.0)
        self.versions = {one.name: version_of(one.policy) for one in run.policies}
        self._history = StatusHistory(run.interval_s)
        self._twins = TwinsFile(run.writer.folder)
        if run.writer.folder is not None:
            self._history.recall(run.writer.folder, run.writer.job, run.spec)
        self._decisions: deque[Document] = deque(maxlen=KEPT)
        self._document: Document | None = None  # of the last decision, once it was asked for

    @property
    def is_ready(self) -> bool:
        """Whether the job was seen at the last decision, which is no older than two intervals."""
        return self.conditions["Ready"].status == "True" and not self.is_silent

    @property
    def is_silent(self) -> bool:
        """Whether no decision was made for two intervals: what is known of the job is old then."""
        return self.silent_s() > SILENT_INTERVALS * self.run.interval_s

    def readiness(self) -> str:
        """Say whether the job is seen, and why not.

        Returns:
            A word and a sentence.
        """
        ready = self.conditions["Ready"]
        if ready.status == "True" and self.is_silent:
            return f"Silent: no decision was made for {self.silent_s():.0f} s"
        return f"{ready.reason}: {ready.message}"

    @property
    def is_full(self) -> bool:
        """Whether the metrics window is full: before that nothing is recommended."""
        seen = None if self.turn is None else self.turn.snapshot
        return seen is not None and bool(seen.window_fill[0] >= FULL)

    def silent_s(self) -> float:
        """Count the seconds since the loop made a decision, or was started.

        Returns:
            Seconds on the monotonic clock.
        """
        return self._clock() - self._decided_s

    def still_s(self) -> float:
        """Count the seconds since the loop showed a sign of life.

        Returns:
            Seconds on the monotonic clock since it decided, or since it had looked at the outcome.
        """
        return self._clock() - self._sign_s

    def passed(self) -> None:
        """Note that an interval has passed and its outcome was looked at."""
        self._sign_s = self._clock()

    def document(self) -> Document:
        """Write the status as of the last decision; not to be changed.

        Returns:
            A `dsp-gym/status/1` document, JSON-able; shared, so read it only.
        """
        with self.lock:
            if self._document is None:  # made for those who ask: it takes as long as a policy
                self._document = self._made(self.turn)
            return self._document

    def curves(self, policy: str | None = None) -> Document:
        """Write the last decisions as curves, and what today has cost.

        Args:
            policy: whose recommendations are shown; None: those of the acting policy.

        Returns:
            A `dsp-gym/history/1` document, JSON-able.

        Raises:
            ConfigError: No policy of that name is asked.
        """
        if policy is not None and policy not in self.versions:
            raise ConfigError(
                "no policy of that name is asked",
                key="policy",
                value=policy,
                remedy=did_you_mean(policy, self.versions),
            )
        with self.lock:
            return self._history.document(self.run.writer.job, self.run.acting, policy)

    def glance(self) -> Glance:
        """Look at the running job.

        Returns:
            Its cost, load and lateness at the last decision.
        """
        with self.lock:
            return self._history.glance()

    def verdict(self) -> VerdictSummary | None:
        """Read the verdict that the process of the twins has reached.

        Returns:
            The verdict; None where there are no twins.
        """
        with self.lock:
            return self._twins.verdict()

    def trouble(self) -> str | None:
        """Say why the job is not seen, or does not run.

        Returns:
            A sentence; None where it runs, or nothing was decided yet.
        """
        if self.turn is None:
            return None
        if not self.is_ready:
            return self.readiness()
        seen = self.turn.snapshot
        down = seen is not None and int(seen.status[0]) == FAILED
        return "the job has failed" if down else None

    def job_line(self) -> JobLine:
        """Make the line of the job in the overview of a fleet.

        Returns:
            Its cost, since when it is late, and the verdict on its best policy.
        """
        found = self.glance()
        return JobLine(
            name=self.run.writer.job,
            currency=found.currency,
            cost_per_month=found.cost_per_month,
            late_since_s=found.late_since_s,
            trouble=self.trouble(),
            verdict=self.verdict(),
        )

    def twins(self) -> Document:
        """Read the figures of the twins that another process drives beside the journal.

        Returns:
            A `dsp-gym/twins/1` document, JSON-able; without periods where there are no twins.
        """
        with self.lock:
            found = self._twins.document()
        empty: Document = {"periods": {}, "curves": None, "failures": {}, "until_s": None}
        empty["verdict"] = None
        return {"schema": TWINS_SCHEMA, "job": self.run.writer.job, **(found or empty)}

    def saving(self) -> Document | None:
        """Find what the job could save.

        Returns:
            Money per month, its currency, the policy, and `by`: `verdict`, or `advice` for the mean
            cost of the acting policy's recommendations; None where neither says anything.
        """
        verdict = self.verdict()
        if verdict is None:
            with self.lock:
                return self._history.saving(self.run.acting)
        if verdict.saving is None:
            return None
        return {
            "per_month": verdict.saving.value,
            "currency": self.glance().currency,
            "policy": verdict.policy,
            "by": "verdict",
        }

    def decided(self, turn: Turn) -> None:
        """Take in a decision."""
        with self.lock:
            self.turn, self._decided_s = turn, self._clock()
            self._sign_s = self._decided_s
            self.data_age_s = self._aged_s(turn)
            self.conditions.update(
                self.run, turn, self.run.backend.platform.managed(), self.data_age_s
            )
            self.counts.add(turn)
            self._history.add(turn)
            self._decisions.append(_decision(turn))
            self._document = None

    def _aged_s(self, turn: Turn) -> float:
        """Count the age of the newest sample, also of one that no look reaches any more.

        Returns:
            Seconds; NaN before the first sample, and while the job is known not to run.
        """
        seen, collector = turn.snapshot, self.run.backend.collector
        if seen is not None and math.isfinite(collector.age_s):
            self._newest_s = turn.t_s - collector.age_s
        runs = seen is None or seen.status[0] in (RUNNING, SAVEPOINTING)
        if not runs and collector.trouble is None:  # in trouble the status is a guess
            return math.nan
        return turn.t_s - self._newest_s

    def _made(self, turn: Turn | None) -> Document:
        run = self.run
        seen = None if turn is None else turn.snapshot
        return {
            "schema": STATUS_SCHEMA,
            "job": run.writer.job,
            "namespace": run.backend.platform.namespace,
            "mode": run.permission.mode,
            "acting": run.acting,
            "interval_s": run.interval_s,
            "decisions_made": 0 if turn is None else turn.number,
            "t_s": None if turn is None else turn.t_s,
            "job_status": None if seen is None else seen.job(0).status.name,
            "held": None if turn is None else turn.held,
            "conditions": self.conditions.document(),
            "data": {
                "age_s": finite(self.data_age_s),
                "window_fill": None if seen is None else float(seen.window_fill[0]),
                "folded": sorted(run.backend.folded),
            },
            "policies": {
                name: {
                    **version._asdict(),
                    "failures": self.counts.failures_of(name),
                    **({} if turn is None else _policy(turn, name)),
                }
                for name, version in self.versions.items()
            },
            "vertices": [] if turn is None or seen is None else _vertices(turn, seen),
            "decisions": list(self._decisions)[::-1],
        }


def costs(turn: Turn, one: Judgement) -> Document:
    """Price the guarded configuration of a policy.

    Returns:
        Money per hour and per month at the job file's prices, for requested resources, and its
        currency.
    """
    assert turn.snapshot is not None
    topology = turn.snapshot.topology
    wanted = Configuration.of_row(one.guarded, topology)
    return costs_to_json(topology.spec(0), wanted.parallelism, wanted.memory_level)


def validity(turn: Turn, one: Judgement) -> Document | None:
    """Measure how far the guarded configuration of a policy lies from the fit of the model.

    Returns:
        Distance in doublings, half of the 90 % interval of its capacity as a factor, and sentences;
        None where the job file holds no fit.
    """
    assert turn.snapshot is not None
    topology = turn.snapshot.topology
    spec = topology.spec(0)
    if spec.fitted is None:
        return None
    wanted = Configuration.of_row(one.guarded, topology)
    found = validity_of(spec, wanted.parallelism, wanted.memory_level)
    return {
        "doublings": found.doublings,
        "capacity_factor": found.factor,
        "sentences": found.sentences(),
    }


def _policy(turn: Turn, name: str) -> Document:
    one = next((one for one in turn.judgements if one.policy == name), None)
    if one is None:
        return {}
    return {
        "fallback_active": one.replaced_by is not None or one.failure is not None,
        "failure": None if one.failure is None else _short(one.failure.reason),
        "seconds": one.seconds,
        **costs(turn, one),
        "validity": validity(turn, one),
        "reason": _short(one.guarded.proposed.reasons[0]),
        "interventions": [
            {"guardrail": i.guardrail, "reason": _short(i.reason)}
            for i in one.guarded.interventions
        ],
    }


def _vertices(turn: Turn, seen: MetricsSnapshot) -> list[Document]:
    return [
        {
            "name": name,
            "current": {
                "parallelism": int(seen.parallelism[0, v]),
                "memory_level": int(seen.memory_level[0, v]),
            },
            "inputs": [edge.from_ for edge in seen.topology.spec(0).vertex(name).inputs],
            "busy_ms_per_s": finite(seen.busy_ms_per_s[0, v]),
            "records_in_per_s": finite(seen.records_in_per_s[0, v]),
            "policies": {one.policy: _wanted(seen, one, v) for one in turn.judgements},
        }
        for v, name in enumerate(seen.topology.names(0))
    ]


def _wanted(seen: MetricsSnapshot, one: Judgement, v: int) -> Document:
    guarded, proposed = one.guarded, one.guarded.proposed
    code, sentence = _reason(seen, one, v)
    return {
        "target": int(guarded.parallelism[0, v]),
        "target_memory_level": int(guarded.memory_level[0, v]),
        "lower": int(one.lower[0, v]),
        "upper": int(one.upper[0, v]),
        "uncapped": int(proposed.parallelism[0, v]),
        "uncapped_memory_level": int(proposed.memory_level[0, v]),
        "reason": code,
        "sentence": sentence,
        "confidence": None if one.confidence is None else float(one.confidence[0, v]),
    }


def _reason(seen: MetricsSnapshot, one: Judgement, v: int) -> tuple[str, str]:
    """Say why a policy's target is what it is: a word, and a sentence.

    The word is `keep`, `wants`, the name of the guardrail that changed it last, or `policy_` with
    the cause of a failure.
    """
    guarded, proposed = one.guarded, one.guarded.proposed
    said = _short(proposed.reasons[0])
    if one.failure is not None:
        return f"policy_{one.failure.cause}", _short(one.failure.reason)
    target = guarded.parallelism[0, v], guarded.memory_level[0, v]
    if target != (proposed.parallelism[0, v], proposed.memory_level[0, v]):
        if guarded.interventions:
            last = guarded.interventions[-1]
            return last.guardrail, _short(last.reason)
        return "guardrails", "the guardrails changed it"
    if target == (seen.parallelism[0, v], seen.memory_level[0, v]):
        return "keep", said
    return "wants", said


def _decision(turn: Turn) -> Document:
    """Write one line of the list of decisions."""
    seen = turn.snapshot
    running = "" if seen is None else str(Configuration.of_row(seen, seen.topology))
    wanted = {
        one.policy: "" if seen is None else str(Configuration.of_row(one.guarded, seen.topology))
        for one in turn.judgements
    }
    return {
        "number": turn.number,
        "t_s": turn.t_s,
        "held": None if turn.held is None else _short(turn.held),
        "asked": turn.asked,
        "policies": {}
        if seen is None
        else {
            one.policy: {
                "changes": wanted[one.policy] != running,
                "configuration": wanted[one.policy],
                "reason": _short(one.guarded.proposed.reasons[0]),
            }
            for one in turn.judgements
        },
    }


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
