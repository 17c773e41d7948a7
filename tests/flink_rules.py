"""A second implementation of Flink's autoscaler 1.15.0: one decision by its published rules.

Independent of the product's code, slow and without arrays, so that a property test can hold the two
against each other for any input. Rules: `flink-autoscaler` of the Flink Kubernetes Operator,
release 1.15.0 (`ScalingMetricEvaluator`, `JobVertexScaler`, `ScalingExecutor`, `DelayedScaleDown`).
Memory is not tuned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal
from typing import Any

Document = Mapping[str, Any]
NAN, INF = math.nan, math.inf
UNITS = {"s": 1, "min": 60, "h": 3600, "mb": 1 << 20, "gb": 1 << 30}
"""Seconds and bytes."""
DEFAULTS = {
    "utilization.target": 0.7,
    "target.utilization.boundary": 0.3,
    "utilization.max": None,
    "utilization.min": None,
    "scale-down.interval": 3600,
    "scale-down.max-factor": 0.6,
    "scale-up.max-factor": 100000.0,
    "vertex.min-parallelism": 1,
    "vertex.max-parallelism": 200,
    "catch-up.duration": 1800,
    "restart.time": 300,
    "backlog-processing.lag-threshold": 300,
    "observed-true-processing-rate.switch-threshold": 0.15,
    "observed-true-processing-rate.min-observations": 2,
    "scaling.effectiveness.threshold": 0.1,
    "scaling.effectiveness.detection.enabled": False,
    "metrics.busy-time.aggregator": "MAX",
    "scaling.key-group.partitions.adjust.mode": "EVENLY_SPREAD",
    "observed-scalability.enabled": False,
    "observed-scalability.min-observations": 3,
    "observed-scalability.coefficient-min": 0.5,
    "scaling.enabled": True,
    "memory.gc-pressure.threshold": 1.0,
    "memory.heap-usage.threshold": 1.0,
    "quota.cpu": None,
    "quota.memory": None,
    "vertex.exclude.ids": (),
    "slots": 1,
}


def options(conf: Mapping[str, str]) -> dict[str, Any]:
    """The configuration as values: seconds, numbers, flags."""
    read: dict[str, Any] = dict(DEFAULTS)
    for key, text in conf.items():
        name = key.removeprefix("job.autoscaler.")
        value: Any = text
        if text in ("true", "false"):
            value = text == "true"
        elif name == "vertex.exclude.ids":
            value = tuple(text.split(";"))
        elif text[0].isdigit():
            value = sized(text)
        read["slots" if name == "taskmanager.numberOfTaskSlots" else name] = value
    return read


def sized(text: str) -> float:
    """A number, a duration in seconds, or a size in bytes."""
    number, _, unit = text.partition(" ")
    return int(number) * UNITS[unit] if unit else float(number) if "." in number else int(number)


def rounded(x: float) -> float:
    """Half up to three decimals on the decimal text; never down to 0."""
    if not math.isfinite(x):
        return x
    near = float(Decimal(repr(x)).quantize(Decimal("0.001"), ROUND_HALF_UP))
    return x if near == 0 else near


def divided(x: float, y: float) -> float:
    """Division as Java does it."""
    if y == 0:
        return NAN if x == 0 or math.isnan(x) else math.copysign(INF, x)
    return x / y


class Decision:
    """One decision document, answered rule by rule."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.o = options(document["conf"])
        self.vertices = {v["name"]: v for v in document["vertices"]}
        self.names = list(self.vertices)
        self.samples = document["history"]
        self.metrics: dict[str, dict[str, float]] = {}
        self.pending: dict[str, tuple[int, list[tuple[int, int, bool]]]] = {}
        for entry in document.get("delayed_scale_down", ()):
            self.ask(self.pending, entry["vertex"], entry["ts_ms"], entry["parallelism"],
                     entry["outside_utilization_bound"])  # fmt: skip

    # -- the window

    def series(self, name: str, metric: str) -> list[tuple[int, float]]:
        found = ((s["ts_ms"], s["vertex_metrics"][name].get(metric)) for s in self.samples)
        known = ((t, float(x)) for t, x in found if x is not None)
        return [(t, x) for t, x in known if not math.isnan(x)]

    def rate(self, name: str, metric: str) -> float:
        known = self.series(name, metric)
        if len(known) < 2:
            return NAN
        return 1000 * (known[-1][1] - known[0][1]) / max(1, known[-1][0] - known[0][0])

    def average(self, name: str, metric: str, least: int = 1) -> float:
        known = [x for _, x in self.series(name, metric)]
        finite = [x for x in known if math.isfinite(x)]
        if not finite:
            return INF if known else NAN
        return sum(finite) / len(finite) if len(finite) >= least else NAN

    def last(self, name: str, metric: str) -> float:
        return float(self.samples[-1]["vertex_metrics"][name].get(metric, 0.0))

    # -- evaluation

    def capacity(self, name: str, utilization: float, restart: bool) -> float:
        m, catch_up_s = self.metrics[name], self.o["catch-up.duration"]
        share = min(1.0, max(0.0, utilization))
        if share == 0:
            return INF
        target = m["TARGET_DATA_RATE"]
        extra = target * self.o["restart.time"] / catch_up_s if restart and catch_up_s else 0.0
        return math.floor(m["CATCH_UP_DATA_RATE"] + extra + target / share + 0.5)

    def ratio(self, u: str, v: str) -> float:
        into = self.rate(u, "NUM_RECORDS_IN")
        if not into > 0:
            return 0.0
        others = [w for w in self.vertices[v]["inputs"] if w != u]
        outputs = [sum(w in x.get("inputs", {}) for x in self.vertices.values()) for w in others]
        beside = sum(self.rate(w, "NUM_RECORDS_OUT") for w in others)
        if not others:
            carried = self.rate(v, "NUM_RECORDS_IN")
        elif all(n == 1 for n in outputs) and not math.isnan(beside):
            carried = self.rate(v, "NUM_RECORDS_IN") - beside
        else:
            carried = self.rate(u, "NUM_RECORDS_OUT")
        return carried / into if carried > 0 else 0.0

    def true_rate(self, name: str) -> float:
        o, into = self.o, self.rate(name, "NUM_RECORDS_IN")
        self.metrics[name]["LOAD"] = rounded(self.busy(name) / 1000)
        by_busy = INF if into == 0 else divided(into, self.busy(name) / 1000)
        seen = self.average(
            name, "OBSERVED_TPR", o["observed-true-processing-rate.min-observations"]
        )
        if math.isnan(seen):
            return by_busy
        much = seen * (1 + o["observed-true-processing-rate.switch-threshold"])
        return seen if not math.isfinite(by_busy) or by_busy > much else by_busy

    def busy(self, name: str) -> float:
        if self.o["metrics.busy-time.aggregator"] == "AVG":
            return self.rate(name, "ACCUMULATED_BUSY_TIME") / self.vertices[name]["parallelism"]
        return self.average(name, "LOAD") * 1000

    def backlog(self) -> bool:
        late = (
            divided(self.last(n, "LAG"), self.rate(n, "NUM_RECORDS_IN"))
            for n, v in self.vertices.items()
            if not v.get("inputs")
        )
        return any(s > self.o["backlog-processing.lag-threshold"] for s in late)

    def evaluate(self) -> dict[str, dict[str, float]]:
        o, behind = self.o, self.backlog()
        upper, lower = o["utilization.max"], o["utilization.min"]
        boundary = o["target.utilization.boundary"]
        upper = o["utilization.target"] + boundary if upper is None else upper
        lower = o["utilization.target"] - boundary if lower is None else lower
        for name, v in self.vertices.items():
            m = self.metrics.setdefault(name, {})
            if v.get("inputs"):
                target = catch_up = 0.0
                for u in v["inputs"]:
                    target += self.metrics[u]["TARGET_DATA_RATE"] * self.ratio(u, name)
                    catch_up += self.metrics[u]["CATCH_UP_DATA_RATE"] * self.ratio(u, name)
            else:
                target = max(0.0, self.rate(name, "NUM_RECORDS_IN") + self.rate(name, "LAG"))
                seconds = o["catch-up.duration"]
                catch_up = self.last(name, "LAG") / seconds if seconds else 0.0
            m["TARGET_DATA_RATE"], m["CATCH_UP_DATA_RATE"] = rounded(target), rounded(catch_up)
            m["TRUE_PROCESSING_RATE"] = rounded(self.true_rate(name))
            m["UP"] = self.capacity(name, 1.0 if behind else upper, False)
            m["DOWN"] = self.capacity(name, 0.0 if behind else lower, True)
        return self.metrics

    # -- one vertex

    def alpha(self, past: Sequence[Document]) -> float:
        """Least squares through the newest entry of the smallest parallelism."""
        if not past or len(past) < self.o["observed-scalability.min-observations"]:
            return 1.0
        pairs = [(e["current_parallelism"], float(e["true_processing_rate"])) for e in past]
        if any(math.isnan(rate) for _, rate in pairs):
            return 1.0
        least = min(p for p, _ in pairs)
        baseline = next(r for p, r in reversed(pairs) if p == least) / least
        squares = sum(p * p for p, _ in pairs)
        fitted = divided(sum(p * r for p, r in pairs), squares * baseline)
        lowest = self.o["observed-scalability.coefficient-min"]
        text = Decimal(repr(max(lowest, min(1.0, fitted))))
        return float(text.quantize(Decimal("0.01"), ROUND_CEILING))

    def aligned(self, name: str, p: int, new: int, low: int, high: int) -> tuple[int, bool]:
        v = self.vertices[name]
        partitions = v.get("num_source_partitions", 0)
        if new == p or not (partitions > 0 or "HASH" in v.get("inputs", {}).values()):
            return new, False
        n, up = partitions or v["max_parallelism"], new > p
        cap = min(n, v["max_parallelism"], high)
        loose = self.o["scaling.key-group.partitions.adjust.mode"] == "MAXIMIZE_UTILISATION"
        for q in range(new, (cap if up else min(p, cap)) + 1):
            if n % q == 0 or (loose and n // q < n // new):
                return q, False
        q = next((q for q in range(new, 0, -1) if n // q > n // new), 0)
        q = max(q + (q > 0 and n % q != 0), low)
        if (q <= p) if up else (q >= p):
            return p, True
        return q, q != new

    @staticmethod
    def ask(
        pending: dict[str, tuple[int, list[tuple[int, int, bool]]]],
        name: str,
        now: int,
        new: int,
        outside: bool,
    ) -> tuple[int, list[tuple[int, int, bool]]]:
        first, asked = pending.get(name, (now, []))
        while asked and asked[-1][1] <= new:
            asked.pop()
        asked.append((now, new, outside))
        pending[name] = first, asked
        return pending[name]

    def change(
        self, name: str, pending: dict[str, tuple[int, list[tuple[int, int, bool]]]]
    ) -> tuple[dict[str, Any], list[str]]:
        """What the scaler says of a vertex, and the events it raises."""
        o, m, v = self.o, self.metrics[name], self.vertices[name]
        p, rate, now = v["parallelism"], m["TRUE_PROCESSING_RATE"], self.document["now_ms"]
        stays: dict[str, Any] = {"current": p, "new": p}
        needed = self.capacity(name, o["utilization.target"], True)
        if math.isnan(rate) or math.isnan(needed):
            return stays, []
        past = self.document.get("scaling_history", {}).get(name, [])
        factor = divided(needed, rate)
        if o["observed-scalability.enabled"]:
            factor /= self.alpha(past)
        if not math.isnan(factor):
            factor = max(1 - o["scale-down.max-factor"], min(1 + o["scale-up.max-factor"], factor))
        low = min(p, o["vertex.min-parallelism"])
        high = max(p, o["vertex.max-parallelism"])
        raw = 0 if math.isnan(factor) else math.ceil(factor * p)
        wanted = min(max(low, raw), min(v["max_parallelism"], high))
        new, limited = self.aligned(name, p, wanted, low, high)
        events = ["ScalingLimited"] if limited else []
        if new == p:
            pending.pop(name, None)
            return stays, events
        hope = rounded(rate * factor)
        stays["expected_processing_rate"] = "NaN" if math.isnan(hope) else hope
        outside = rate < m["UP"] or rate > m["DOWN"]
        if new > p:
            pending.pop(name, None)
            if past and p == past[-1]["new_parallelism"] > past[-1]["current_parallelism"]:
                before = float(past[-1]["true_processing_rate"])
                hoped = float(past[-1]["expected_processing_rate"]) - before
                share = divided(rate - before, hoped)
                if not share >= o["scaling.effectiveness.threshold"]:
                    events.append("IneffectiveScaling")
                    if o["scaling.effectiveness.detection.enabled"]:
                        return stays, events
        elif o["scale-down.interval"] > 0:
            start = now - 1000 * o["scale-down.interval"]
            first, asked = self.ask(pending, name, now, new, outside)
            if start < first:
                return stays, events
            while asked[0][0] < start:
                asked.pop(0)
            _, new, outside = asked[0]
            if new == p:
                return stays, events
        return {**stays, "new": new, "outside_utilization_bound": outside}, events

    # -- the job

    def exceeds_quota(self, changed: Mapping[str, Document]) -> bool:
        o, d = self.o, self.document
        groups: dict[str, list[str]] = {}
        for name, v in self.vertices.items():
            if v.get("slot_sharing_group"):
                groups.setdefault(v["slot_sharing_group"], []).append(name)
        moved = [[n for n in names if n in changed] for names in groups.values()]
        before, after = (
            sum(max((changed[n][key] for n in names), default=0) for names in moved) // o["slots"]
            for key in ("current", "new")
        )
        if after <= before:
            return False
        memory = sized(d.get("tm_memory", "0 gb"))
        return (o["quota.cpu"] is not None and d.get("tm_cpu", 0) * after > o["quota.cpu"]) or (
            o["quota.memory"] is not None and memory * after > o["quota.memory"]
        )

    def visited(self) -> list[str]:
        """The names as a Java hash map holds them."""
        size = 16
        while len(self.names) > 0.75 * size:
            size *= 2

        def bucket(name: str) -> int:
            code = sum(ord(c) * 31**i for i, c in enumerate(reversed(name))) % 2**32
            return (code ^ (code >> 16)) % size

        return sorted(self.names, key=bucket)

    def pressed(self) -> bool:
        values = [s.get("global_metrics", {}) for s in self.samples]
        heap = [v["HEAP_MAX_USAGE_RATIO"] for v in values if "HEAP_MAX_USAGE_RATIO" in v]
        ratio = rounded(sum(heap) / len(heap)) if heap else NAN
        gc = values[-1].get("GC_PRESSURE", NAN)
        o = self.o
        return gc > o["memory.gc-pressure.threshold"] or ratio > o["memory.heap-usage.threshold"]

    def answer(self) -> dict[str, Any]:
        """The fields of a decision."""
        self.evaluate()
        trial = {name: (first, list(asked)) for name, (first, asked) in self.pending.items()}
        found: dict[str, Any] = {
            "processing_backlog": self.backlog(),
            "evaluated": {
                name: {
                    "LOAD": {"average": m["LOAD"]},
                    "TRUE_PROCESSING_RATE": {"average": m["TRUE_PROCESSING_RATE"]},
                    "TARGET_DATA_RATE": {"average": m["TARGET_DATA_RATE"]},
                    "CATCH_UP_DATA_RATE": {"current": m["CATCH_UP_DATA_RATE"]},
                    "SCALE_UP_RATE_THRESHOLD": {"current": m["UP"]},
                    "SCALE_DOWN_RATE_THRESHOLD": {"current": m["DOWN"]},
                }
                for name, m in self.metrics.items()
            },
            "vertex_changes": {name: self.change(name, trial)[0] for name in self.names},
        }
        events: list[str] = []
        scaled, changed = False, {}
        if self.pressed():
            events.append("MemoryPressure")
        else:
            for name in self.visited():
                if name in self.o["vertex.exclude.ids"]:
                    continue
                change, raised = self.change(name, self.pending)
                events += raised
                if change["new"] != change["current"]:
                    changed[name] = change
        if any(change["outside_utilization_bound"] for change in changed.values()):
            events.append("ScalingReport")
            if self.o["scaling.enabled"]:
                over = self.exceeds_quota(changed)
                events += ["ResourceQuotaReached"] * over
                scaled = not over
        if scaled:
            self.pending = {}
        after = {name: {**v, **changed.get(name, {})} for name, v in self.vertices.items()}
        found["scaled"], found["event_reasons"] = scaled, events
        found["parallelism_overrides"] = {
            name: v.get("new", v["parallelism"]) for name, v in after.items() if scaled
        }
        found["delayed"] = {
            name: {
                "first_trigger_ms": first,
                "recommended": [
                    {"ts_ms": t, "parallelism": q, "outside_utilization_bound": b}
                    for t, q, b in asked
                ],
            }
            for name, (first, asked) in self.pending.items()
        }
        return written(found)


def written(value: Any) -> Any:
    """Numbers as documents write them; what is not known is left out."""
    if isinstance(value, dict):
        return {k: written(x) for k, x in value.items() if not _unknown(x)}
    if isinstance(value, list):
        return [written(x) for x in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _unknown(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
