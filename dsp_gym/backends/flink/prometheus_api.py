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

from dsp_gym.config.strict_json import Document
from dsp_gym.errors import ConfigError, MissingExtraError, did_you_mean
from dsp_gym.upstream.access import AccessConfig

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


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
            text: `FLINKS=THEIRS`, several with commas between; `FLINKS=`: this Prometheus has no
                such label; `LABEL="VALUE"`: only series with it count. None: Flink's own.

        Returns:
            The labels; those that are not named keep Flink's name.

        Raises:
            ConfigError: A part is no such pair, or Flink has no such label.

        >>> Labels.parse("job_name=flink_job, tm_id=pod").tm_id
        'pod'
        >>> Labels.parse('job_id=, cluster="eu"').only
        (('cluster', 'eu'),)
        """
        found: dict[str, str] = {}
        only: list[tuple[str, str]] = []
        known = [field.name for field in fields(cls) if field.name != "only"]
        for part in (text or "").split(",") if text else ():
            flinks, equals, theirs = (side.strip() for side in part.partition("="))
            value = re.fullmatch(r'"([^"\\]*)"', theirs)
            if equals and value is not None and _NAME.fullmatch(flinks) is not None:
                only.append((flinks, value[1]))
                continue
            if not equals or (theirs and _NAME.fullmatch(theirs) is None):
                raise ConfigError(
                    "is not a pair of labels",
                    key="--labels",
                    value=part.strip(),
                    remedy="Write Flink's label and your Prometheus's label: job_name=flink_job",
                )
            if flinks not in known:
                raise ConfigError(
                    f"'{flinks}' is no label of Flink's that is read",
                    key="--labels",
                    value=part.strip(),
                    remedy=did_you_mean(flinks, known),
                )
            found[flinks] = theirs
        return cls(**found, only=tuple(only))

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
        parts = [f"{label}=~{json.dumps(one)}" for label, one in (("__name__", names), *matchers)]
        parts += [f"{label}={json.dumps(value)}" for label, value in self.only]
        return f"{{{','.join(parts)}}}"


def _known_labels(text: str) -> str:
    """Validate labels in a configuration, which keeps them as they were written."""
    try:
        Labels.parse(text)
    except ConfigError as error:
        raise ValueError(f"{error.value!r} {error.message}; {error.remedy}") from error
    return text


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

            from dsp_gym.upstream.connections import Adapter
            from dsp_gym.upstream.session import BoundedSession
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
