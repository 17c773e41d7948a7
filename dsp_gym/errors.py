"""Every error this project raises on purpose.

    DspGymError
    ├── ConfigError            a configuration file, key or name is wrong
    │   ├── GraphError         the vertices of a job do not form a usable DAG
    │   └── KeywordError       an unknown keyword argument; also a TypeError
    ├── ActionError            an action of a learner cannot be read; also a ValueError
    ├── LoadError              a load or its trace cannot be used
    ├── PolicyError            a policy, or its folder, cannot be used
    ├── MetricsError           a metrics snapshot contradicts itself
    ├── ApiError               an interface around a job cannot be reached, or refuses
    │   ├── FlinkError         a Flink cluster, its job or its metrics
    │   └── KubernetesError    an API server
    ├── SchemaError            a document has a version or shape this release does not read
    ├── ImportNameError        another package has an import name of ours
    ├── MissingExtraError      an optional dependency is not installed
    ├── DatasetError           a dataset, one of its sources or its build cannot be used
    ├── EngineError            an engine gave up on work it was given
    ├── DeviceError            there is no GPU that can be used, or it is too small for the work
    ├── RegistryError          a model registry has no such name, or cannot be reached
    └── StorageError           a file or folder cannot be written or read

Each error states the mistake, its place, the value, the expectation and the next step, and contains
no credentials: those of URLs are hidden when it is created. The command line prints the message and
exits with code 2; library users catch `DspGymError`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypedDict, Unpack

from dsp_gym.redaction import redacted

Api = Literal["flink", "prometheus", "kubernetes"]
"""Interfaces that a job is observed and scaled through."""

ApiReason = Literal[
    "Unreachable",
    "Timeout",
    "NoMetrics",
    "NotFound",
    "Conflict",
    "Forbidden",
    "Unauthorized",
    "Gone",
    "Invalid",
    "Unsupported",
    "Other",
]
"""Kinds of failure of an interface: code branches on them, and metrics are counted by them."""


class _Where(TypedDict, total=False):
    """Location of an error and its remedy: the keyword arguments of `DspGymError`."""

    file: str | Path | None
    key: str | None
    value: object
    remedy: str | None


class DspGymError(Exception):
    """A mistake that the user can correct; the message says where and how.

    Args:
        message: The mistake, and the expectation it violates.
        file: File it was found in.
        key: Dotted key inside that file, such as ``vertices[2].state.keys``.
        value: The offending value; shown unless it is None.
        remedy: The next step, a full sentence.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        key: str | None = None,
        value: object = None,
        remedy: str | None = None,
    ) -> None:
        # Before the message reaches `args`: tracebacks and pickles show those.
        message = redacted(message)
        super().__init__(message)
        self.message = message
        self.file = None if file is None else str(file)
        self.key = key
        self.value = value
        self.remedy = None if remedy is None else redacted(remedy)

    def __str__(self) -> str:
        where = [] if self.file is None else [self.file]
        if self.key is not None:
            where.append(f"key '{self.key}'")
        if self.value is not None:
            where.append(f"value {_shortened(self.value)}")
        text = ": ".join([*where, self.message])
        if self.remedy is None:
            return text
        return f"{text}{'' if text.endswith(('.', '?', '!')) else '.'} {self.remedy}"

    def in_file(self, file: str | Path) -> DspGymError:
        """Name the file the error was found in, unless one is named already.

        Returns:
            This error, so that it can be raised at once.
        """
        if self.file is None:
            self.file = str(file)
        return self


class ConfigError(DspGymError):
    """A configuration file, one of its keys, or a name given by the user is wrong."""


class GraphError(ConfigError):
    """The vertices of a job do not form a usable DAG."""


class KeywordError(ConfigError, TypeError):
    """A keyword argument is unknown, in the words of Python, which libraries look for.

    >>> str(KeywordError("laod", ["load", "slo_s"]))
    "got an unexpected keyword argument 'laod'. Did you mean 'load'?"

    Args:
        message: The keyword; or a whole message, as Gymnasium makes one around an error's text.
        known: The keywords that there are.
        **where: `file`, `key`, `value`, `remedy`, as for every error.
    """

    def __init__(
        self, message: str, known: Iterable[str] | None = None, **where: Unpack[_Where]
    ) -> None:
        if known is not None:
            where["remedy"] = did_you_mean(message, known)
            message = f"got an unexpected keyword argument '{message}'"
        super().__init__(message, **where)


class ActionError(DspGymError, ValueError):
    """An action has a wrong shape, or is no whole number."""


class LoadError(DspGymError):
    """A load, or the trace it is made from, cannot be used."""


class PolicyError(DspGymError):
    """A policy, or the folder it is stored in, cannot be used."""


class MetricsError(DspGymError):
    """A metrics snapshot contradicts itself."""


class ApiError(DspGymError):
    """An interface that a job is observed or scaled through cannot be reached, or refuses.

    Args:
        message: As for every error.
        api: The interface that failed.
        reason: Kind of failure; code branches on it, and metrics are counted by it.
        **where: `file`, `key`, `value`, `remedy`, as for every error.
    """

    def __init__(
        self, message: str, *, api: Api, reason: ApiReason = "Other", **where: Unpack[_Where]
    ) -> None:
        super().__init__(message, **where)
        self.api: Api = api
        self.reason: ApiReason = reason


class FlinkError(ApiError):
    """A Flink cluster, one of its jobs, or its metrics cannot be reached, or refuse.

    Args:
        message: As for every error.
        api: The interface that failed: Flink's own, or the Prometheus that scrapes it.
        reason: As for every interface.
        **where: `file`, `key`, `value`, `remedy`, as for every error.
    """

    def __init__(
        self,
        message: str,
        *,
        api: Api = "flink",
        reason: ApiReason = "Other",
        **where: Unpack[_Where],
    ) -> None:
        super().__init__(message, api=api, reason=reason, **where)


class SchemaError(DspGymError):
    """A document has a version or a shape that this release does not read."""


class DatasetError(DspGymError):
    """A dataset, one of its sources or its build cannot be used; nothing was published."""


class EngineError(DspGymError):
    """An engine gave up on work it was given; finished work is kept."""


class DeviceError(DspGymError):
    """There is no GPU that can be used, it has too little memory, or it was lost."""


class KubernetesError(ApiError):
    """An API server cannot be reached, or refuses.

    Args:
        message: As for every error.
        reason: As for every interface.
        may_have_acted: Whether the server may have made the change despite the error; then read the
            object before repeating the request.
        **where: `file`, `key`, `value`, `remedy`, as for every error.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: ApiReason = "Other",
        may_have_acted: bool = False,
        **where: Unpack[_Where],
    ) -> None:
        super().__init__(message, api="kubernetes", reason=reason, **where)
        self.may_have_acted = may_have_acted


class RegistryError(DspGymError):
    """A model registry has no such name, or cannot be reached."""


class StorageError(DspGymError):
    """A file or folder cannot be written or read."""


class ImportNameError(DspGymError):
    """Python finds another package, or none, by an import name of ours."""


class MissingExtraError(DspGymError):
    """An optional dependency is not installed.

    >>> str(MissingExtraError("train", "training an agent"))
    "training an agent needs the extra 'train'. Install it: pip install 'dsp-gym[train]'"
    """

    def __init__(self, extra: str, purpose: str = "this") -> None:
        super().__init__(
            f"{purpose} needs the extra '{extra}'",
            remedy=f"Install it: pip install 'dsp-gym[{extra}]'",
        )
        self.extra = extra
        self.purpose = purpose

    # Exceptions are unpickled from `args`, the message here: workers of engines need the arguments.
    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.extra, self.purpose)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Offer the nearest choice, or list the choices when none is near.

    Args:
        word: The unknown word.
        choices: The known words.

    Returns:
        A sentence to show as the remedy of an error.

    >>> did_you_mean("metric_window_s", ["metrics_window_s", "interval_s"])
    "Did you mean 'metrics_window_s'?"
    >>> did_you_mean("x", ["ds2", "static"])
    'Choose from: ds2, static.'
    """
    known = sorted(set(choices))
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"Did you mean '{near[0]}'?"
    return f"Choose from: {', '.join(known)}." if known else "There is none to choose from."


def _shortened(value: object, limit: int = 120) -> str:
    text = redacted(repr(value))  # before it is cut: half a URL is not recognised as one
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
