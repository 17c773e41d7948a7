"""JSON Schemas of what a live loop says of itself: jobs, status and history."""

from __future__ import annotations

from dataclasses import fields

from dsp_gym.control.beside import TWINS_SCHEMA
from dsp_gym.control.overview import CAUSES, FleetTotals
from dsp_gym.control.serve.boards import JOBS_SCHEMA
from dsp_gym.control.serve.conditions import CONDITIONS
from dsp_gym.control.serve.history import HISTORY_SCHEMA, QUANTITIES, Glance
from dsp_gym.control.serve.status import STATUS_SCHEMA
from dsp_gym.loop.snapshot import Status
from dsp_gym.loop.wire import Document

_TEXT: Document = {"type": "string"}
_FLAG: Document = {"type": "boolean"}
_COUNT: Document = {"type": "integer", "minimum": 0}
_NUMBER: Document = {"type": "number"}
_TRUTH: Document = {"enum": ["True", "False", "Unknown"]}
_JOB_STATUS: Document = {"enum": [*Status.__members__, None]}
_TASKS: Document = {"type": "integer", "minimum": 1}
_LEVEL: Document = {"type": "integer", "minimum": -1}


def schemas() -> Document:
    """Write the schemas, for `components` of the OpenAPI document.

    Returns:
        A schema each of Jobs, Status, History and Twins.
    """
    return {"Jobs": _jobs(), "Status": _status(), "History": _history(), "Twins": _twins()}


def _object(optional: Document | None = None, **required: Document) -> Document:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items: Document) -> Document:
    return {"type": "array", "items": items}


def _by_name(values: Document) -> Document:
    return {"type": "object", "additionalProperties": values}


def _or_null(schema: Document) -> Document:
    return {"anyOf": [schema, {"type": "null"}]}


def _jobs() -> Document:
    saving = _object(
        per_month=_NUMBER,
        currency=_or_null(_TEXT),
        policy=_TEXT,
        by={"enum": ["verdict", "advice"]},
    )
    watched = _object(
        job=_TEXT,
        watched={"const": True},
        namespace=_or_null(_TEXT),
        mode=_TEXT,
        acting=_TEXT,
        job_status=_JOB_STATUS,
        held=_or_null(_TEXT),
        decisions_made=_COUNT,
        t_s=_or_null(_NUMBER),
        conditions=_by_name(_TRUTH),
        now=_object(**{name: _or_null(_glance(name)) for name in Glance._fields}),
        trouble=_or_null(_TEXT),
        cause=_or_null(_TEXT),
        verdict=_or_null(_verdict()),
        saving=_or_null(saving),
    )
    in_trouble = _object(job=_TEXT, namespace=_or_null(_TEXT), watched={"const": False}, held=_TEXT)
    jobs = _list({"anyOf": [watched, in_trouble]})
    return _object(schema={"const": JOBS_SCHEMA}, fleet=_fleet(), jobs=jobs)


def _glance(name: str) -> Document:
    return _TEXT if name == "currency" else _NUMBER


def _fleet() -> Document:
    """Describe what is said of all jobs together."""
    text = {"currency": _TEXT, "jobs": _COUNT, "claimed_jobs": _COUNT, "likely_jobs": _COUNT}
    text |= {"rescue_jobs": _COUNT}
    sums = _object(**{one.name: text.get(one.name, _NUMBER) for one in fields(FleetTotals)})
    return _object(
        headline=_TEXT,
        totals=_list(sums),
        late=_list(_TEXT),
        causes=_list(_object(code={"enum": list(CAUSES)}, text=_TEXT, jobs=_list(_TEXT))),
        order=_list(_TEXT),
    )


def _verdict() -> Document:
    """Describe a verdict: the policy that leads the page of a job."""
    words = {"enum": ["promote", "rescue", "keep watching", "reject", None]}
    return _object(
        policy=_or_null(_TEXT),
        word=words,
        sentence=_TEXT,
        days=_NUMBER,
        cost_per_month=_NUMBER,
        late=_or_null(_NUMBER),
        late_then=_or_null(_NUMBER),
        saving=_or_null(_object(value=_NUMBER, low=_NUMBER, high=_NUMBER)),
        claimed_per_month=_NUMBER,
        blocks=_list(_object(subject=_TEXT, found=_TEXT, needed=_TEXT)),
    )


def _status() -> Document:
    condition = _object(
        type={"enum": list(CONDITIONS)},
        status=_TRUTH,
        reason=_TEXT,
        message=_TEXT,
        since_s=_NUMBER,
    )
    return _object(
        schema={"const": STATUS_SCHEMA},
        job=_TEXT,
        namespace=_or_null(_TEXT),
        mode=_TEXT,
        acting=_TEXT,
        interval_s=_NUMBER,
        decisions_made=_COUNT,
        t_s=_or_null(_NUMBER),
        job_status=_JOB_STATUS,
        held=_or_null(_TEXT),
        conditions=_list(condition),
        data=_object(age_s=_or_null(_NUMBER), window_fill=_or_null(_NUMBER), folded=_list(_TEXT)),
        policies=_by_name(_policy()),
        vertices=_list(_vertex()),
        decisions=_list(_decision()),
    )


def _policy() -> Document:
    """Describe a policy; before its first decision it has a version alone."""
    validity = _object(doublings=_NUMBER, capacity_factor=_or_null(_NUMBER), sentences=_list(_TEXT))
    decided = {
        "fallback_active": _FLAG,
        "failure": _or_null(_TEXT),
        "seconds": _NUMBER,
        "cost_per_hour": _or_null(_NUMBER),
        "cost_per_month": _or_null(_NUMBER),
        "currency": _TEXT,
        "validity": _or_null(validity),
        "reason": _TEXT,
        "interventions": _list(_object(guardrail=_TEXT, reason=_TEXT)),
    }
    return _object(decided, version=_TEXT, sha256=_TEXT, failures=_COUNT)


def _vertex() -> Document:
    wanted = _object(
        target=_TASKS,
        target_memory_level=_LEVEL,
        lower=_TASKS,
        upper=_TASKS,
        uncapped=_TASKS,
        uncapped_memory_level=_LEVEL,
        reason=_TEXT,
        sentence=_TEXT,
        confidence=_or_null(_NUMBER),
    )
    return _object(
        name=_TEXT,
        current=_object(parallelism=_COUNT, memory_level=_LEVEL),
        inputs=_list(_TEXT),
        busy_ms_per_s=_or_null(_NUMBER),
        records_in_per_s=_or_null(_NUMBER),
        policies=_by_name(wanted),
    )


def _decision() -> Document:
    wanted = _object(changes=_FLAG, configuration=_TEXT, reason=_TEXT)
    return _object(
        number=_COUNT,
        t_s=_NUMBER,
        held=_or_null(_TEXT),
        asked=_FLAG,
        policies=_by_name(wanted),
    )


def _history() -> Document:
    curve = _list(_or_null(_NUMBER))
    return _object(
        schema={"const": HISTORY_SCHEMA},
        job=_TEXT,
        acting=_TEXT,
        policy=_TEXT,
        decisions_made=_COUNT,
        slo_latency_s=_or_null(_NUMBER),
        currency=_or_null(_TEXT),
        curves=_object(**dict.fromkeys(QUANTITIES, curve)),
        changes=_list(_object(t_s=_NUMBER, text=_TEXT)),
        today=_or_null(_object(since_s=_NUMBER, running=_NUMBER, recommended=_NUMBER)),
    )


def _twins() -> Document:
    """Describe what another process wrote last; it may say more than this release knows."""
    found = _object(
        schema={"const": TWINS_SCHEMA},
        job=_TEXT,
        periods={"type": "object"},
        curves={"type": ["object", "null"]},
        failures={"type": "object"},
        until_s=_or_null(_NUMBER),
        verdict=_or_null(_verdict()),
    )
    return {**found, "additionalProperties": True}
