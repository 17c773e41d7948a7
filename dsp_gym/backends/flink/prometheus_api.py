"""Prometheus' HTTP interface: its two questions, values and names, and the labels of its series.

A relabelling, or a reporter that goes through another system, gives labels other names than Flink's
reporter does.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator

from dsp_gym.backends.upstream.access import AccessConfig
from dsp_gym.config.strict_json import Document
from dsp_gym.errors import ConfigError, MissingExtraError, did_you_mean

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_DOTTED = re.compile(r"[a-zA-Z_][\w.-]*", re.ASCII)
"""A label that kept the dots of an OpenTelemetry attribute, from Prometheus 3 on."""

PRESETS = {
    "flink": "",  # with and without `filterLabelValueCharacters`
    "scope-excluded": "job_id=,tm_id=",  # scope.variables.excludes: job_id;tm_id;host
    "pod-monitor": "",
    "service-monitor": "",
    "thanos": "",
    "mimir": "",
    "cortex": "",
    "pushgateway": "",
    "opentelemetry": "",  # Flink's reporter names its attributes as its labels
}
"""Ways to Prometheus by name: labels that differ from those of Flink's reporter behind it.

Further labels, such as those of a monitor, a replica or a resource, are no part of the identity.
"""


@dataclass(frozen=True, slots=True)
class Labels:
    """The label of this Prometheus by Flink's name of it."""

    job_name: str = "job_name"
    job_id: str = "job_id"
    task_name: str = "task_name"
    task_id: str = "task_id"
    subtask_index: str = "subtask_index"
    task_attempt_num: str = "task_attempt_num"
    operator_id: str = "operator_id"
    operator_name: str = "operator_name"
    tm_id: str = "tm_id"
    only: tuple[tuple[str, str], ...] = ()
    """Labels and values of the wanted series, such as those of one cluster of several."""

    @classmethod
    def parse(cls, text: str | None) -> Labels:
        """Read labels as the command line takes them.

        Args:
            text: Perhaps the name of a preset, then `FLINKS=THEIRS`, several with commas between;
                `FLINKS=`: this Prometheus has no such label; `LABEL="VALUE"`: only series with it
                count. None: Flink's own.

        Returns:
            The labels; those that are not named keep Flink's name.

        Raises:
            ConfigError: A part is no such pair, Flink has no such label, or too few are left to
                tell jobs or subtasks apart.

        >>> Labels.parse("job_name=flink_job, tm_id=pod").tm_id
        'pod'
        >>> Labels.parse('job_id=, cluster="eu"').only
        (('cluster', 'eu'),)
        >>> Labels.parse("scope-excluded, job_name=flink_job").job_id
        ''
        """
        parts = [part.strip() for part in text.split(",")] if text else []
        if parts and parts[0] in PRESETS:
            parts = [part for part in PRESETS[parts[0]].split(",") if part] + parts[1:]
        found: dict[str, str] = {}
        only: list[tuple[str, str]] = []
        for part in parts:
            label, theirs, is_value = _pair(part)
            if is_value:
                only.append((label, theirs))
            else:
                found[label] = theirs
        labels = cls(**found, only=tuple(only))
        labels._require("job_name", "job_id")
        labels._require("task_id", "task_name")
        labels._require("subtask_index")
        return labels

    def _require(self, *labels: str) -> None:
        """Refuse labels that identify nothing."""
        if not any(getattr(self, label) for label in labels):
            raise ConfigError(
                f"without {' and '.join(labels)} nothing tells whose a series is",
                key="--labels",
                value=",".join(f"{label}=" for label in labels),
                remedy=f"Let Flink's reporter and the scrape keep {' or '.join(labels)}.",
            )

    def selector(self, names: str, *matchers: tuple[str, str]) -> str:
        """Write a selector of series.

        Args:
            names: of the metrics, a regular expression.
            matchers: further labels and regular expressions of their values.

        Returns:
            PromQL; series that `only` rules out are not selected.

        >>> Labels(only=(("cluster", "eu"),)).selector("up", ("job_id", "a|b"))
        '{__name__=~"up",job_id=~"a|b",cluster="eu"}'
        """
        named = (("__name__", names), *matchers)
        parts = [f"{promql_label(label)}=~{json.dumps(one)}" for label, one in named]
        parts += [f"{label}={json.dumps(value)}" for label, value in self.only]
        return f"{{{','.join(parts)}}}"


def promql_label(name: str) -> str:
    """Write the name of a label in PromQL.

    Returns:
        The name, in quotes where it holds more than letters, digits and underscores.

    >>> promql_label("job_id"), promql_label("flink.job.id")
    ('job_id', '"flink.job.id"')
    """
    return name if _NAME.fullmatch(name) else json.dumps(name)


def _pair(part: str) -> tuple[str, str, bool]:
    """Return a label, its name or value at this Prometheus, and whether it is a value."""
    label, equals, theirs = (side.strip() for side in part.partition("="))
    value = re.fullmatch(r'"([^"\\]*)"', theirs)
    if equals and value is not None and _NAME.fullmatch(label) is not None:
        return label, value[1], True
    if not equals:
        raise ConfigError(
            "is neither a pair of labels nor, at the beginning, a preset",
            key="--labels",
            value=part,
            remedy="Write Flink's label and your Prometheus's label, job_name=flink_job, or begin "
            f"with one of {', '.join(PRESETS)}.",
        )
    if theirs and _DOTTED.fullmatch(theirs) is None:
        raise ConfigError(
            "is not a pair of labels",
            key="--labels",
            value=part,
            remedy="Write Flink's label and your Prometheus's label: job_name=flink_job",
        )
    known = [field.name for field in fields(Labels) if field.name != "only"]
    if label not in known:
        raise ConfigError(
            f"'{label}' is no label of Flink's that is read",
            key="--labels",
            value=part,
            remedy=f"{did_you_mean(label, known)} Labels: {', '.join(known)}.",
        )
    return label, theirs, False


def _known_labels(text: str) -> str:
    """Validate labels in a configuration, which keeps them as they were written."""
    try:
        Labels.parse(text)
    except ConfigError as error:
        raise ValueError(f"{error.value!r} {error.message}; {error.remedy}") from error
    return text


LABELS_ARE = (
    "labels of that Prometheus that differ from Flink's, such as job_name=flink_job,tm_id=pod, "
    'perhaps after the name of a preset (guide "Describe the jobs you run"); `job_id=` says that '
    'it has none of that name, and cluster="eu" leaves out all other series'
)
"""What a key for labels is, in a configuration."""

LabelsText = Annotated[str, AfterValidator(_known_labels)]
"""Labels as `Labels.parse` reads them, in a configuration."""


_CONNECT_S = 1.0
"""A Prometheus that takes no connection within this is down."""


class PrometheusApi:
    """Questions to one server, through `prometheus-api-client`, over connections that stay open.

    Args:
        url: its address.
        timeout_s: longest wait for an answer, s.
        access: account, certificates and proxy; None: those of the address, or of the environment.

    Raises:
        ConfigError: A file cannot be read, or every user can read the account.
        MissingExtraError: prometheus-api-client is not installed.
    """

    def __init__(self, url: str, timeout_s: float, access: AccessConfig | None = None) -> None:
        try:
            from prometheus_api_client import PrometheusConnect

            from dsp_gym.backends.upstream.connections import Adapter
            from dsp_gym.backends.upstream.session import BoundedSession
        except ImportError as error:
            raise MissingExtraError("flink", "reading metrics from Prometheus") from error
        self.session = BoundedSession(access, "prometheus_account", _CONNECT_S)
        self._client = PrometheusConnect(
            url,
            session=self.session,
            timeout=timeout_s,
            method="POST",  # a selector may be longer than an address
        )
        self.session.mount(url, Adapter())  # in place of the client's own, which tries three times

    def query(self, expression: str, at_s: float) -> list[Document]:
        """Evaluate an expression at one moment.

        Args:
            expression: in PromQL.
            at_s: Unix seconds.

        Returns:
            The series of the answer, each with `metric` and `value` or `values`.

        Raises:
            LateError: There was no whole answer in time.
            RequestException: The server cannot be reached.
            StatusError: It answered with an error.
            ValueError: The answer is no JSON, too large, or partial.
            AttributeError, KeyError, TypeError: The answer is not Prometheus'.
        """
        found: list[Document] = self._client.custom_query(
            expression, params={"time": f"{at_s:.3f}"}
        )
        return found

    def series(self, selector: str, since_s: float, until_s: float) -> list[Document]:
        """Ask which series there are; no value is read for that.

        Args:
            selector: in PromQL.
            since_s: Unix seconds.
            until_s: Unix seconds.

        Returns:
            The labels of each series that has a value in that time.

        Raises:
            LateError: As for `query`.
            RequestException: As for `query`.
            StatusError: As for `query`.
            ValueError: As for `query`.
            AttributeError, KeyError, TypeError: As for `query`.
        """
        begin, end = (datetime.fromtimestamp(t_s, UTC) for t_s in (since_s, until_s))
        found: list[Document] = self._client.get_series(begin, end, params={"match[]": selector})
        return found
