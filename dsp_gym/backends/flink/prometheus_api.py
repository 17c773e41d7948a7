"""Prometheus' HTTP interface: its two questions, values and names, and the labels of its series.

A process beside a job lives for months in a small container. The general client brings pandas and
matplotlib along wherever they are installed; `requests` alone is what it would use here.

A relabelling, or a reporter that goes through another system, gives labels other names than Flink's
reporter does.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator

from dsp_gym.backends.interpreter_turn import waiting
from dsp_gym.config.files import private_text
from dsp_gym.config.strict_json import Document, parse_json
from dsp_gym.errors import ConfigError, MissingExtraError, did_you_mean

if TYPE_CHECKING:
    from requests import Response

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


MOST_BYTES = 128 * 2**20
"""Of an answer: ten minutes of a job with a thousand subtasks take a tenth of it."""

_PART_BYTES = 2**16

_CONNECT_S = 1.0
"""A Prometheus that takes no connection within this is down."""


class StatusError(Exception):
    """Prometheus answered with a status other than 200.

    Args:
        status: of HTTP.
        content: of the answer.
        retry_after_s: how long the server wants to be left alone, s; 0: it does not say.
    """

    def __init__(self, status: int, content: bytes, retry_after_s: float = 0.0) -> None:
        super().__init__(f"HTTP status {status} ({content[:300]!r})")
        self.status, self.retry_after_s = status, retry_after_s


class PrometheusApi:
    """Questions to one server, over connections that stay open; nothing is tried twice.

    Proxies, certificates and accounts are those of the environment and the address, as `requests`
    reads them.

    Args:
        url: its address.
        timeout_s: longest wait for an answer, s.
        account: file with `user:password` or a bearer token; None: as above.

    Raises:
        ConfigError: The file cannot be read, or every user can read it.
        MissingExtraError: requests is not installed.
    """

    def __init__(self, url: str, timeout_s: float, account: Path | None = None) -> None:
        try:
            from requests import Session
        except ImportError as error:
            raise MissingExtraError("flink", "reading metrics from Prometheus") from error
        self.session = Session()
        self.takes_partial = True
        """Whether an answer may lack what a server that fans out could not reach."""
        self._account_file, self._account = account, ""
        self.renew()
        self._api = f"{url}/api/v1"
        self._timeout_s = min(_CONNECT_S, timeout_s), timeout_s

    def renew(self) -> bool:
        """Read the file of the account again: a token expires, and another one is written there.

        Returns:
            Whether the file holds another account than before.

        Raises:
            ConfigError: The file cannot be read, or every user can read it.
        """
        if self._account_file is None:
            return False
        account = private_text(self._account_file, "prometheus_account")
        if account == self._account:
            return False
        self._account = account
        self._log_in(account)
        return True

    def _log_in(self, account: str) -> None:
        user, colon, password = account.partition(":")
        if colon:
            self.session.auth = (user, password)
        else:
            self.session.headers["Authorization"] = f"Bearer {account}"
            self.session.trust_env = False  # an account of ~/.netrc would take its place

    def query(self, expression: str, at_s: float) -> list[Document]:
        """Evaluate an expression at one moment.

        Args:
            expression: in PromQL.
            at_s: Unix seconds.

        Returns:
            The series of the answer, each with `metric` and `value` or `values`.

        Raises:
            RequestException: The server cannot be reached, or is late.
            StatusError: It answered with an error.
            ValueError: The answer is no JSON, too large, or partial.
            AttributeError, KeyError, TypeError: The answer is not Prometheus'.
        """
        document = self._asked("query", {"query": expression, "time": f"{at_s:.3f}"})
        series: list[Document] = document["data"]["result"]
        return series

    def series(self, selector: str, since_s: float, until_s: float) -> list[Document]:
        """Ask which series there are; no value is read for that.

        Args:
            selector: in PromQL.
            since_s: Unix seconds.
            until_s: Unix seconds.

        Returns:
            The labels of each series that has a value in that time.

        Raises:
            RequestException: As for `query`.
            StatusError: As for `query`.
            ValueError: As for `query`.
            AttributeError, KeyError, TypeError: As for `query`.
        """
        asked = {"match[]": selector, "start": f"{since_s:.3f}", "end": f"{until_s:.3f}"}
        found: list[Document] = self._asked("series", asked)["data"]
        return found

    def _asked(self, what: str, params: dict[str, str]) -> Document:
        with waiting():
            answer = self.session.post(
                f"{self._api}/{what}", params=params, timeout=self._timeout_s, stream=True
            )
            with answer:
                content = _content(answer)
        if answer.status_code != 200:
            raise StatusError(answer.status_code, content, _retry_after_s(answer))
        document: Document = parse_json(content)
        warnings = None if self.takes_partial else document.get("warnings")
        if warnings:
            raise ValueError(f"the answer is partial: {'; '.join(map(str, warnings))}")
        return document


def _retry_after_s(answer: Response) -> float:
    """Seconds that the server asks to wait; a date counts as not said."""
    said = answer.headers.get("Retry-After", "")
    return float(said) if said.isascii() and said.isdigit() else 0.0


def _content(answer: Response) -> bytes:
    """The body, unpacked: a few bytes of gzip can stand for any number."""
    content = bytearray()
    for part in answer.iter_content(_PART_BYTES):
        content += part
        if len(content) > MOST_BYTES:
            raise ValueError(f"it answered more than {MOST_BYTES // 2**20} MiB")
    return bytes(content)
