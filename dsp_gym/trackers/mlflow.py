"""MLflow: runs and the model registry. The only module that opens it.

The store is SQLite by default; MLflow 3 refuses its old file store. A policy is registered as the
folder it is, without pickle: a model version whose source is the run's copy of the folder.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from dsp_gym.backends.upstream.deadlines import within
from dsp_gym.backends.upstream.timed_calls import LateError
from dsp_gym.config.temporary import exchange_folder
from dsp_gym.errors import MissingExtraError, RegistryError, StorageError, did_you_mean
from dsp_gym.policies.pins import digest_of, refuse_other_digest, split_pin
from dsp_gym.policies.registry import POLICY_FILE
from dsp_gym.redaction import redacted
from dsp_gym.trackers.base import CHALLENGER, Tracker, flatten

DEFAULT_URI = "sqlite:///mlflow.db"

DIGEST = "dsp_gym.digest"
"""Tag of a model's version: the digest of the policy folder that was registered."""

_BATCH = 1000
"""MLflow takes at most so many metrics in one call; single calls are 30 times slower."""
_PARAMS_BATCH, _PARAM_LENGTH = 100, 6000
_MODEL_URI = re.compile(r"^models:/(?P<name>[^@/]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))$")


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """What was recorded of a run, its files in a local folder."""

    run_id: str
    name: str
    params: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]
    folder: Path


class MlflowTracker(Tracker):
    """Records a run in MLflow."""

    def __init__(self, uri: str = DEFAULT_URI, experiment: str = "dsp-gym") -> None:
        self._uri = uri
        self._pending: list[object] = []
        with _mlflow_errors(uri):
            self._client = _client(uri)
            found = self._client.get_experiment_by_name(experiment)
            self._experiment = (
                self._client.create_experiment(experiment, _artifact_root(uri, experiment))
                if found is None
                else found.experiment_id
            )

    def start(self, name: str, tags: Mapping[str, str]) -> None:
        with _mlflow_errors(self._uri):
            hidden = {key: redacted(value) for key, value in tags.items()}
            run = self._client.create_run(self._experiment, run_name=name, tags=hidden)
        self.run_id = run.info.run_id

    def params(self, values: Mapping[str, object]) -> None:
        from mlflow.entities import Param

        texts = {
            key: value if isinstance(value, str) else json.dumps(value, default=str)
            for key, value in flatten(values).items()
        }
        params = [Param(key, redacted(text)[:_PARAM_LENGTH]) for key, text in texts.items()]
        for start in range(0, len(params), _PARAMS_BATCH):
            with _mlflow_errors(self._uri):
                self._client.log_batch(self._run, params=params[start : start + _PARAMS_BATCH])

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        # The time of a metric is not read back; it is there because MLflow's tables ask for it.
        now_ms = int(time.time() * 1000)
        self._pending += [
            Metric(key, float(value), now_ms, step)
            for key, value in values.items()
            if math.isfinite(value)
        ]
        if len(self._pending) >= _BATCH:
            self._flush()

    def artifact(self, path: Path, folder: str = "") -> None:
        with _mlflow_errors(self._uri):
            if path.is_dir():
                self._client.log_artifacts(self._run, str(path), folder or None)
            else:
                self._client.log_artifact(self._run, str(path), folder or None)

    def register(self, folder: Path, model: str, alias: str | None) -> str | None:
        from mlflow.exceptions import MlflowException

        self.artifact(folder, "policy")
        with _mlflow_errors(self._uri):
            source = f"{self._client.get_run(self._run).info.artifact_uri}/policy"
            try:
                held = self._client.get_registered_model(model).aliases
            except MlflowException:
                held = self._client.create_registered_model(model).aliases
            version = self._client.create_model_version(
                model, source, run_id=self._run, tags={DIGEST: digest_of(folder)}
            ).version
            if alias is None:
                return f"models:/{model}/{version}"
            if alias in held:  # newer is not better: a person or a gate moves it
                alias = CHALLENGER
            self._client.set_registered_model_alias(model, alias, version)
        return f"models:/{model}@{alias}"

    def end(self, status: str = "FINISHED") -> None:
        if self.run_id is None:
            return
        self._flush()
        with _mlflow_errors(self._uri):
            self._client.set_terminated(self.run_id, status)

    @property
    def _run(self) -> str:
        if self.run_id is None:
            raise RegistryError("the run has not been started", remedy="Call start() first.")
        return self.run_id

    def _flush(self) -> None:
        for start in range(0, len(self._pending), _BATCH):
            with _mlflow_errors(self._uri):
                self._client.log_batch(self._run, metrics=self._pending[start : start + _BATCH])
        self._pending = []


STORE_S = 300.0
"""Longest wait for all that one command asks of a tracking server, s; its retries count."""

P = ParamSpec("P")
T = TypeVar("T")


def _in_time(function: Callable[P, T]) -> Callable[P, T]:
    """Have a function of this module end at its deadline, whatever its server does."""

    @wraps(function)
    def bounded(*args: P.args, **kwargs: P.kwargs) -> T:
        given = signature(function).bind(*args, **kwargs)
        given.apply_defaults()
        uri = str(given.arguments["uri"])
        if _sqlite_path(uri) is not None:
            return function(*args, **kwargs)
        try:
            with quiet():
                return within(uri, STORE_S, lambda: function(*args, **kwargs))
        except LateError as error:
            raise RegistryError(
                f"the MLflow store did not answer in time: {error}",
                value=uri,
                remedy="See whether the tracking server runs and answers there.",
            ) from error

    return bounded


@_in_time
def pull(
    address: str,
    into: Path,
    uri: str = DEFAULT_URI,
    *,
    replace: bool = False,
) -> Path:
    """Fetch a registered policy folder.

    Args:
        address: ``models:/NAME@ALIAS`` or ``models:/NAME/VERSION``; a digest may follow,
            ``@sha256:...``.
        into: The folder to make; it must not exist, or be empty.
        uri: The registry.
        replace: A policy folder may be there; once the other is fetched, it goes.

    Returns:
        The folder.

    Raises:
        RegistryError: The address is malformed, or there is no such model, alias or version.
        PolicyError: What was fetched has another digest than the address asks for, or than was
            registered; nothing is put in place.
        StorageError: Something is there that may not be replaced.
    """
    named, digest = split_pin(address)
    _parsed(named)
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        is_policy = (into / POLICY_FILE).is_file()
        if not (replace and is_policy):
            raise StorageError(
                "is there already" if is_policy else "is there already, and is no policy folder",
                file=into,
                remedy="Choose a folder that does not exist yet"
                + (", or --overwrite this one." if is_policy else "."),
            )
    with _version_at(named, uri) as (_, found):
        source, kept = str(found.source), found.tags.get(DIGEST)

    def check(folder: Path) -> None:
        for wanted in (digest, kept):
            if wanted is not None:
                refuse_other_digest(folder, wanted, address)

    _download(source, into, uri, check)
    return into


@_in_time
def tag_version(address: str, tags: Mapping[str, str], uri: str = DEFAULT_URI) -> None:
    """Write tags on one version of a registered policy; aliases stay where they are.

    Raises:
        RegistryError: The address is malformed, or there is no such model, alias or version.
    """
    with _version_at(address, uri) as (client, found):
        for key, value in tags.items():
            hidden = redacted(value)[:5000]
            client.set_model_version_tag(found.name, found.version, key, hidden)


@_in_time
def promote(address: str, alias: str, uri: str = DEFAULT_URI) -> dict[str, str]:
    """Move an alias to a version.

    Returns:
        The version's tags, among them its last verdict.

    Raises:
        RegistryError: The address is malformed, or there is no such model, alias or version.
    """
    with _version_at(address, uri) as (client, found):
        client.set_registered_model_alias(found.name, alias, found.version)
    return {"version": str(found.version), **dict(found.tags)}


@_in_time
def fetch_run(run_id: str, into: Path, uri: str = DEFAULT_URI) -> TrackedRun:
    """Fetch the record of a run, with all its files, into a folder that does not exist yet.

    Returns:
        The record.
    """
    from mlflow.exceptions import MlflowException

    _refuse_missing_store(uri)
    with _mlflow_errors(uri):
        client = _client(uri)
        try:
            run = client.get_run(run_id)
        except MlflowException as error:
            raise RegistryError(
                "there is no such run", value=run_id, remedy=f"List them: mlflow ui, store {uri}."
            ) from error
    _download(run.info.artifact_uri, into, uri)
    data = run.data
    return TrackedRun(
        run_id, run.info.run_name, dict(data.params), dict(data.metrics), dict(data.tags), into
    )


@contextmanager
def _version_at(address: str, uri: str) -> Iterator[tuple[Any, Any]]:
    """Yield a client of the store and the version of a model that an address names."""
    match = _parsed(address)
    _refuse_missing_store(uri)
    with _mlflow_errors(uri):
        client = _client(uri)
        yield client, _version(client, match["name"], match["alias"], match["version"])


def _parsed(address: str) -> re.Match[str]:
    match = _MODEL_URI.match(address)
    if match is None:
        raise RegistryError(
            "is not an address in the registry",
            value=address,
            remedy="Write models:/NAME@ALIAS or models:/NAME/VERSION, and @sha256:DIGEST behind it "
            "where no other content may be fetched.",
        )
    return match


def _version(client: Any, name: str, alias: str | None, version: str | None) -> Any:
    from mlflow.exceptions import MlflowException

    try:
        model = client.get_registered_model(name)
    except MlflowException as error:
        known = [found.name for found in client.search_registered_models()]
        raise RegistryError(
            f"there is no registered model '{name}'", remedy=did_you_mean(name, known)
        ) from error
    try:
        if alias is not None:
            return client.get_model_version_by_alias(name, alias)
        return client.get_model_version(name, version)
    except MlflowException as error:
        if alias is not None:
            message, remedy = (
                f"the model '{name}' has no alias '{alias}'",
                did_you_mean(alias, model.aliases),
            )
        else:
            versions = [str(v.version) for v in client.search_model_versions(f"name='{name}'")]
            message, remedy = (
                f"the model '{name}' has no version {version}",
                did_you_mean(str(version), versions),
            )
        raise RegistryError(message, remedy=remedy) from error


def _download(
    source: str, into: Path, uri: str, check: Callable[[Path], None] = lambda folder: None
) -> None:
    """Copy artifacts aside, check them, then put them in place whole."""
    import mlflow.artifacts

    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=into.parent, prefix=f".{into.name}."))
    except OSError as error:
        raise StorageError(f"cannot be written: {error.strerror}", file=into) from error
    try:
        with _mlflow_errors(uri):
            mlflow.artifacts.download_artifacts(
                artifact_uri=source, dst_path=str(aside / "download"), tracking_uri=_absolute(uri)
            )
        found = aside / "download"
        inner = found / Path(source).name
        whole = inner if inner.is_dir() else found
        check(whole)
        exchange_folder(whole, into, aside)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _client(uri: str) -> Any:
    # MLflow reports its use over the network unless told not to; a user may still ask for it.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # Its own are two minutes for every byte, and seven retries.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    # One line per migration of a new database, and a progress bar per copied file.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    require()
    from mlflow import MlflowClient

    found = _absolute(uri)
    return MlflowClient(tracking_uri=found, registry_uri=found)


def _absolute(uri: str) -> str:
    """The same store from any folder: MLflow keeps the connections of a process by their URI."""
    path = _sqlite_path(uri)
    return uri if path is None else f"sqlite:///{path.absolute()}"


def _refuse_missing_store(uri: str) -> None:
    """Reading must not make an empty database."""
    path = _sqlite_path(uri)
    if path is not None and not path.is_file():
        raise RegistryError(
            "there is no such store",
            value=uri,
            remedy="Name the store of your runs with --uri, or run dsp-gym train first.",
        )


def _sqlite_path(uri: str) -> Path | None:
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def _artifact_root(uri: str, experiment: str) -> str | None:
    """Files stay beside the database, wherever it is later opened from."""
    path = _sqlite_path(uri)
    if path is None:
        return None
    return (path.absolute().parent / "mlartifacts" / experiment).as_uri()


def require() -> None:
    """Import MLflow.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        with quiet():
            from mlflow import MlflowClient  # noqa: F401  # imported for its absence
    except ModuleNotFoundError as error:
        raise MissingExtraError("registry", "recording runs and pulling policies") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Hide warnings that concern MLflow itself.

    Yields:
        Nothing; the filters are those of the whole process until the block ends, so that only the
        main thread sets them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"mlflow\.")
        warnings.filterwarnings("ignore", module=r"(sqlalchemy|starlette|pydantic|alembic)\.")
        yield


@contextmanager
def _mlflow_errors(uri: str) -> Iterator[None]:
    """Turn failures of the store into ours, and hide warnings that concern MLflow itself."""
    require()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    with quiet():
        try:
            yield
        except (MlflowException, SQLAlchemyError) as error:
            raise RegistryError(
                f"the MLflow store failed: {str(error).splitlines()[0]}",
                value=uri,
                remedy="Check that the store exists and can be written to.",
            ) from error
