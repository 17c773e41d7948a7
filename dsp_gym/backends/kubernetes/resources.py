"""FlinkDeployment and FlinkSessionJob as an external autoscaler may rely on them.

Read leniently: releases 1.10 to 1.16 of the operator differ in their definitions, every part of the
status may be missing, and values unknown to this release must not stop anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from dsp_gym.backends.kubernetes.overrides import KEY, Override, OverrideForm, flattened
from dsp_gym.config.strict_json import Document, Json, parse_json
from dsp_gym.errors import KubernetesError

EPOCH = "dsp-gym.io/epoch"
"""Annotation with the number of the leader that wrote last; each leader's is greater."""

HOLDER = "dsp-gym.io/holder"
"""Annotation with the name of that leader, as in the lease."""

DECISION = "dsp-gym.io/decision"
"""Annotation with the id of the decision that was written last, as in the journal."""

OWN_ANNOTATIONS = (EPOCH, HOLDER, DECISION)
"""All the metadata of a resource that is ever written."""

_DIGITS = 18
"""Longest epoch that is read; CEL's integers hold as many digits."""

LEAP = 1000
"""One write raises the epoch by that much at most: after the largest there is no next one."""

VERTICES = "dsp-gym.io/vertices"
"""Annotation that the job's owner writes: the vertices that may be rescaled, and their bounds."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the annotations say."""

    epoch: int = 0  # 0: nobody has stamped the resource
    holder: str = ""
    decision: str | None = None
    trouble: str | None = None  # why the epoch cannot be read

    @classmethod
    def of(cls, annotations: Mapping[str, object]) -> Self:
        """Read the annotations leniently: `trouble` says what cannot be read.

        Returns:
            The stamp; epoch 0 without one.

        >>> Stamp.of({"dsp-gym.io/epoch": "7", "dsp-gym.io/holder": "pod-a"}).epoch
        7
        """
        text = str(annotations.get(EPOCH, "0"))
        decision = annotations.get(DECISION)
        rest = str(annotations.get(HOLDER, "")), None if decision is None else str(decision)
        if text.isascii() and text.isdecimal() and len(text) <= _DIGITS:
            return cls(int(text), *rest)
        return cls(0, *rest, f"its annotation {EPOCH} is no number: {text[:40]!r}")

    def annotations(self) -> dict[str, str]:
        """Write the stamp.

        Returns:
            Its annotations; that of the decision is left out, and so stays, where there is none.
        """
        written = {EPOCH: str(self.epoch), HOLDER: self.holder}
        return written if self.decision is None else {**written, DECISION: self.decision}


KILL_SWITCH = "dsp-gym.io/stop"
"""Annotation of the resource; while it is there, and not "false", nothing is written to it."""

KILL_SWITCH_OFF = ("false", "False", "FALSE")
"""What it may say for the resource to be written; the server knows no others."""

UNKNOWN = "unknown"

_LIFECYCLE = frozenset(
    (
        "CREATED",
        "SUSPENDED",
        "UPGRADING",
        "DEPLOYED",
        "STABLE",
        "ROLLING_BACK",
        "ROLLED_BACK",
        "FAILED",
        "DELETING",
        "DELETED",
    )
)
_JOB = frozenset(
    (
        "INITIALIZING",
        "CREATED",
        "RUNNING",
        "FAILING",
        "FAILED",
        "CANCELLING",
        "CANCELED",
        "FINISHED",
        "RESTARTING",
        "SUSPENDED",
        "RECONCILING",
    )
)
_RECONCILIATION = frozenset(("DEPLOYED", "UPGRADING", "ROLLING_BACK", "ROLLED_BACK"))
_UPGRADE = frozenset(("stateless", "savepoint", "last-state"))
_MODES = frozenset(("native", "standalone"))
_PREFIXES = ("job.autoscaler.", "kubernetes.operator.job.autoscaler.")


@dataclass(frozen=True, slots=True)
class FlinkResource:
    """One custom resource at one version; words the definitions do not have are "unknown"."""

    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int | None
    observed_generation: int | None  # of the spec the operator looked at last
    lifecycle_state: str
    reconciliation_state: str
    job_state: str
    job_id: str | None  # another one after every redeployment
    job_name: str | None  # in Flink, if the status names it
    upgrade_mode: str
    mode: str
    flink_version: str
    is_session_cluster: bool
    is_deleting: bool
    suspended: bool
    started_s: float | None  # when the job was submitted, Unix seconds
    job_arguments: tuple[str, ...]
    effective_arguments: tuple[str, ...]  # of the spec that runs
    configuration: Mapping[str, str]  # by dotted keys
    overrides: Mapping[str, int]  # vertex id to parallelism, of the spec
    effective_overrides: Mapping[str, int]  # of the spec that runs
    override_form: OverrideForm
    override_trouble: str | None
    builtin_autoscaler: Literal["off", "advisor", "on"]
    kill_switch: bool
    stamp: Stamp  # of the leader that wrote last
    error: str | None  # the operator's own words
    written: Override
    body: Mapping[str, Json] = field(repr=False, compare=False)  # metadata and spec
    override_manager: str | None = None  # client that wrote the override last, by the server

    @classmethod
    def parse(cls, body: Mapping[str, object]) -> FlinkResource:
        """Read the document of an API server.

        Returns:
            The resource.
        """
        meta, spec, status = (_map(body.get(part)) for part in ("metadata", "spec", "status"))
        job, job_status = _map(spec.get("job")), _map(status.get("jobStatus"))
        reconciled = _map(status.get("reconciliationStatus"))
        configuration = _map(spec.get("flinkConfiguration"))
        override, flat = Override.of(configuration), flattened(configuration)
        runs = _last_reconciled(reconciled)
        effective = Override.of(_map(runs.get("flinkConfiguration")))
        started_ms = _number(job_status.get("startTime"))
        annotations = _map(meta.get("annotations"))
        return cls(
            kind=str(body.get("kind") or "FlinkDeployment"),
            namespace=str(meta.get("namespace", "")),
            name=str(meta.get("name", "")),
            uid=str(meta.get("uid", "")),
            resource_version=str(meta.get("resourceVersion", "")),
            generation=_number(meta.get("generation")),
            observed_generation=_number(status.get("observedGeneration")),
            lifecycle_state=_word(status.get("lifecycleState"), _LIFECYCLE),
            reconciliation_state=_word(reconciled.get("state"), _RECONCILIATION),
            job_state=_word(job_status.get("state"), _JOB),
            job_id=_optional(job_status.get("jobId")),
            job_name=_optional(job_status.get("jobName")),
            upgrade_mode=_word(job.get("upgradeMode", "stateless"), _UPGRADE),
            mode=_word(spec.get("mode", "native"), _MODES),
            flink_version=str(spec.get("flinkVersion") or UNKNOWN),
            is_session_cluster=not job,
            is_deleting=meta.get("deletionTimestamp") is not None,
            suspended=job.get("state") == "suspended",
            started_s=None if started_ms is None else started_ms / 1000.0,
            job_arguments=_texts(job.get("args")),
            effective_arguments=_texts(_map(runs.get("job")).get("args")),
            configuration=flat,
            overrides=override.values,
            effective_overrides=effective.values,
            override_form=override.form,
            override_trouble=override.trouble,
            builtin_autoscaler=_builtin(flat),
            kill_switch=annotations.get(KILL_SWITCH, "false") not in KILL_SWITCH_OFF,
            stamp=Stamp.of(annotations),
            error=_optional(status.get("error")),
            written=override,
            body={"metadata": {**meta}, "spec": {**spec}},
            override_manager=_manager_of(meta.get("managedFields"), KEY.partition(".")[2]),
        )

    def reason_not_to_act(self) -> str | None:
        """Why nothing may be written to it now.

        Returns:
            A sentence; None if it may be changed.
        """
        return self.reason_not_to_write() or self._not_settled()

    def patch_for(self, overrides: Mapping[str, int]) -> Document:
        """Build the patch that asks for parallelism, in the form the resource uses.

        Returns:
            A merge patch of the resource.

        Raises:
            KubernetesError: The override that stands there cannot be told.
        """
        if self.override_trouble is not None:
            raise KubernetesError(
                f"{self}: {self.override_trouble}",
                reason="Invalid",
                remedy=f"Leave one text '{KEY}' there.",
            )
        return {"spec": {"flinkConfiguration": self.written.patch(overrides)}}

    @property
    def annotations(self) -> Mapping[str, Json]:
        """All of its annotations."""
        return _map(_map(self.body["metadata"]).get("annotations"))

    @property
    def has_pending_change(self) -> bool:
        """Whether the operator has not taken in what the spec says."""
        observed = self.observed_generation
        return observed is not None and self.generation is not None and observed < self.generation

    @property
    def has_ended(self) -> bool:
        """Whether its job has ended for good; while the operator upgrades it, it ends for now."""
        stands = self.lifecycle_state in ("STABLE", "DEPLOYED") and not self.has_pending_change
        return stands and self.job_state in ("FINISHED", "CANCELED")

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    def reason_not_to_write(self) -> str | None:
        """The part of the reasons that holds for putting the old numbers back, too.

        A job that does not come back is not STABLE, and that is why they are put back.

        Returns:
            The first reason that applies, in words; None where the resource may be written.
        """
        if self.kill_switch:
            return f"the annotation {KILL_SWITCH} says stop"
        if self.is_session_cluster:
            return "it is a session cluster; its jobs are FlinkSessionJobs"
        if self.builtin_autoscaler == "on":
            return "it is managed by the operator's built-in autoscaler"
        if self.override_trouble is not None:
            return self.override_trouble
        if self.stamp.trouble is not None:
            return self.stamp.trouble
        if self.upgrade_mode == "stateless":
            return "its upgradeMode is stateless: an upgrade would lose its state"
        if self.upgrade_mode == UNKNOWN:
            return "its upgradeMode is not known to this release"
        if self.suspended:
            return "it is suspended"
        if self.is_deleting:
            return "it is being deleted"
        if self.has_ended:
            return f"its job is {self.job_state}: a change would start it again"
        return None

    def _not_settled(self) -> str | None:
        """Reasons that pass."""
        if self.lifecycle_state != "STABLE":
            return f"its lifecycleState is {self.lifecycle_state}, not STABLE"
        if self.reconciliation_state in ("ROLLING_BACK", "ROLLED_BACK", "UPGRADING"):
            return f"its reconciliation is {self.reconciliation_state}"
        if self.job_state != "RUNNING":
            return f"its job is {self.job_state}, not RUNNING"
        if self.has_pending_change:
            return "a change of its spec is pending"
        if self.effective_overrides != self.overrides:
            return "an override that was written has not been taken in"
        return None


def _builtin(configuration: Mapping[str, str]) -> Literal["off", "advisor", "on"]:
    """What the spec says; the operator's own defaults are not seen from here."""

    def value(key: str, default: str) -> str:
        found = (configuration[p + key] for p in _PREFIXES if p + key in configuration)
        return next(found, default).strip().lower()

    if value("enabled", "false") != "true":
        return "off"
    return "on" if value("scaling.enabled", "true") == "true" else "advisor"


def _last_reconciled(reconciliation: Mapping[str, Json]) -> Mapping[str, Json]:
    """The spec that runs: a JSON text, wrapped with metadata since operator 1.1."""
    try:
        document = parse_json(reconciliation.get("lastReconciledSpec") or "{}")
    except (ValueError, TypeError):
        return {}
    document = _map(document)
    return _map(document.get("spec", document))


def _manager_of(fields: object, key: str) -> str | None:
    """Name the client that wrote a key last, as the server keeps it."""
    entries = [_map(one) for one in fields] if isinstance(fields, list) else []
    found = [one for one in entries if key in json.dumps(one.get("fieldsV1"), default=str)]
    if not found:
        return None
    return _optional(max(found, key=lambda one: str(one.get("time", ""))).get("manager"))


def _map(value: object) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(part) for part in value) if isinstance(value, list) else ()


def _word(value: object, known: frozenset[str]) -> str:
    return value if isinstance(value, str) and value in known else UNKNOWN


def _optional(value: object) -> str | None:
    return str(value) if value else None


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int | str) and str(value).isdecimal() else None
