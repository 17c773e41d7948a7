"""Is everything there? Versions, extras, Java, caches, threads, a GPU, names, data; a cluster.

Nothing heavy is imported: what is installed is read from its metadata.
"""

from __future__ import annotations

import functools
import importlib
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dsp_gym.backends.flink.local.distribution import (
    find_java,
    find_libraries,
    find_prometheus,
    jobs_jar,
)
from dsp_gym.engine import cores
from dsp_gym.envs.registration import OLDEST_FOR_BATCHES, no_batches, too_old
from dsp_gym.errors import DspGymError
from dsp_gym.shared_names import (
    AGAIN,
    DISTRIBUTION,
    SHARED_NAMES,
    how_to_part,
    is_ours,
    location,
    other_owners,
)

if TYPE_CHECKING:
    from dsp_gym.backends.flink.versions import Support, Way

PURPOSES: dict[str, str] = {
    "all": "all extras below except bench, dev and gpu",
    "dev": "test, lint and build the project itself",
    "flink": "a local Flink, recordings of it, metrics from Prometheus",
    "gpu": "simulate on an NVIDIA GPU (device='cuda'), under Linux",
    "kubernetes": "jobs of the Flink Kubernetes Operator",
    "multi-agent": "an agent for each operator (PettingZoo)",
    "offline": "datasets for offline learning (Minari)",
    "plan": "planning agents, StreamBed's planner, calibration, fits",
    "polars": "datasets of rollouts and journals without a JVM",
    "registry": "record runs and keep policies (MLflow)",
    "shadow": "shadow mode beside a job, without recordings (what the image installs)",
    "spark": "datasets, rollouts and evaluations on Spark",
    "train": "train agents, draw reports",
    "tune": "search the parameters of policies and agents (dsp-gym tune)",
    "video": "watch environments: pictures, films, a window",
}
"""What each extra is for."""

CheckStatus = Literal["ok", "missing", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `missing` is optional, a `problem` has to be put right."""

    subject: str
    name: str
    status: CheckStatus
    detail: str
    remedy: str | None = None
    purpose: str | None = None  # of an extra


def diagnose() -> list[Finding]:
    """Check everything, in the order a reader would ask.

    Returns:
        One finding per check.
    """
    return [
        *_versions(),
        *_extras(),
        *_flink(),
        _compiled_code_cache(),
        _threads(),
        _card(),
        *_names(),
        _data(),
    ]


def of_cluster(url: str) -> list[Finding]:
    """Find out whether the jobs of a cluster are read, and in which ways they may be changed.

    Args:
        url: of its REST interface.

    Returns:
        A finding for its version, for reading, and for each way; for its version alone where it
        does not answer or is not read.
    """
    from dsp_gym.backends.discovery.flink import settings_of
    from dsp_gym.backends.flink.rest import FlinkRest
    from dsp_gym.backends.flink.versions import WAYS, support_of, unread, version_of

    try:
        rest = FlinkRest(url)
        version = version_of(rest)
        row = support_of(version)
        if row is None or not row.reading:
            raise unread(rest.url, version)
        with rest.reading():
            scheduler = settings_of(rest).get("jobmanager.scheduler", "default").lower()
    except DspGymError as error:
        return [Finding("cluster", "version", "problem", error.message, error.remedy)]
    return [
        Finding("cluster", "version", "ok", f"Flink {version} at {rest.url}"),
        Finding("cluster", "reading", "ok", "by all commands that read a cluster"),
        *(_changed(way, row, scheduler) for way in WAYS),
    ]


def _changed(way: Way, row: Support, scheduler: str) -> Finding:
    """Say whether jobs of a release may be changed in a way, under a scheduler."""
    name, how = _CHANGES[way]
    if not row.allows(way):
        from dsp_gym.backends.flink.versions import allowing

        detail = (
            f"not tested on Flink {row.version}; tested on {', '.join(allowing(way)) or 'none'}"
        )
        remedy = "Leave out --apply, or run the job on such a release."
        return Finding("cluster", name, "missing", detail, remedy)
    detail = f"the cluster has the {scheduler} scheduler"
    if way == "in_place" and scheduler != "adaptive":
        remedy = "Start the cluster with jobmanager.scheduler: adaptive."
        return Finding("cluster", name, "missing", detail, remedy)
    if way == "memory" and scheduler == "adaptive":
        remedy = "Start the cluster with jobmanager.scheduler: default."
        detail += ", which gives every slot the same memory"
        return Finding("cluster", name, "missing", detail, remedy)
    return Finding("cluster", name, "ok", how)


_CHANGES: Mapping[Way, tuple[str, str]] = {
    "in_place": ("change in place", "parallelism, by the adaptive scheduler (actuator: adaptive)"),
    "redeploy": ("change by redeploying", "by savepoint and resubmission (actuator: resubmit)"),
    "memory": ("memory per operator", "with the resubmission (actuator: resubmit)"),
}
"""What the ways are called, and how a job is changed."""


def has_problems(findings: list[Finding]) -> bool:
    """Find out whether anything has to be put right.

    Returns:
        True where at least one finding has the status `problem`.
    """
    return any(finding.status == "problem" for finding in findings)


@functools.cache
def installed_version(distribution: str) -> str | None:
    """Look up a distribution's version.

    Returns:
        The version; None if the distribution is not installed.
    """
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _requirements() -> Iterator[tuple[str, str | None]]:
    """List each requirement as the distribution's name and the extra it belongs to."""
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        name = re.match(r"[A-Za-z0-9._-]+", line)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", line)
        if name is not None and name[0] != DISTRIBUTION:
            yield name[0], extra[1] if extra else None


def _versions() -> Iterator[Finding]:
    yield Finding("version", "python", "ok", platform.python_version())
    own = installed_version(DISTRIBUTION)
    if own is None:
        yield Finding(
            "version",
            DISTRIBUTION,
            "problem",
            "runs from a folder without being installed: policies are not found by name",
            "pip install -e .",
        )
        return
    yield Finding("version", DISTRIBUTION, "ok", own)
    for name, extra in _requirements():
        if extra is None:
            found = installed_version(name)
            status: CheckStatus = "problem" if found is None else "ok"
            remedy = f"pip install {name}" if found is None else None
            if name == "gymnasium" and found and too_old(found, OLDEST_FOR_BATCHES):
                error = no_batches(found)
                yield Finding("version", name, "problem", error.message, error.remedy)
                continue
            yield Finding("version", name, status, found or "not installed", remedy)


def _extras() -> Iterator[Finding]:
    extras: dict[str, list[str]] = {}
    for name, extra in _requirements():
        if extra is not None:
            extras.setdefault(extra, []).append(name)
    for extra, needed in sorted(extras.items()):
        absent = [name for name in needed if installed_version(name) is None]
        purpose = PURPOSES.get(extra)
        if absent:
            yield Finding(
                "extra",
                extra,
                "missing",
                f"not installed: {', '.join(absent)}",
                f"pip install 'dsp-gym[{extra}]'",
                purpose,
            )
        else:
            found = ", ".join(f"{name} {installed_version(name)}" for name in needed)
            yield Finding("extra", extra, "ok", found, purpose=purpose)


def _flink() -> Iterator[Finding]:
    """Check the needs of a local Flink, its jobs and the data pipeline; all of it is optional."""
    needs: tuple[tuple[str, str, Callable[[], str]], ...] = (
        ("java", "java", _java),
        ("flink", "libraries", _libraries),
        ("flink", "prometheus", _prometheus),
        ("flink", "jobs jar", lambda: str(jobs_jar())),
        ("spark", "java", _spark_java),
    )
    for subject, name, look in needs:
        try:
            yield Finding(subject, name, "ok", look())
        except DspGymError as error:
            yield Finding(subject, name, "missing", error.message, error.remedy)


def _java() -> str:
    java = find_java()
    return f"{java.path}: {java.version}"


def _spark_java() -> str:
    """Check the Java that Spark uses: it may come from a wheel, which Flink cannot use."""
    # By name: the library stands below the pipeline.
    java: Any = importlib.import_module("spark_pipelines.session")
    return str(java.java_home().origin)


def _libraries() -> str:
    libraries = find_libraries()
    return f"Flink {libraries.version} in {libraries.folder}"


def _prometheus() -> str:
    return str(find_prometheus())


def _compiled_code_cache() -> Finding:
    """Check where Numba keeps compiled code: beside the source, else in the user's cache folder."""
    beside = Path(__file__).parent / "simulation" / "__pycache__"
    user = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "numba"
    named = os.environ.get("NUMBA_CACHE_DIR")
    candidates = [Path(named)] if named else [beside, user]
    for folder in candidates:
        if _is_writable(folder):
            return Finding("cache", "compiled code", "ok", str(folder))
    return Finding(
        "cache",
        "compiled code",
        "problem",
        f"cannot be written: {', '.join(map(str, candidates))}; every start compiles again",
        "export NUMBA_CACHE_DIR=/a/folder/you/can/write",
    )


def _is_writable(folder: Path) -> bool:
    """Try to write, in the folder or the nearest one above it: permissions alone do not say."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return True
    except OSError:
        return False


def _threads() -> Finding:
    named = [
        f"{name}={os.environ[name]}"
        for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS")
        if name in os.environ
    ]
    return Finding("threads", "usable cores", "ok", ", ".join([str(cores()), *named]))


def _card() -> Finding:
    """Check for a GPU, which is optional."""
    from dsp_gym.simulation.cuda.card import find_card

    try:
        return Finding("gpu", "card", "ok", str(find_card()))
    except DspGymError as error:
        return Finding("gpu", "card", "missing", error.message, error.remedy)


def _names() -> Iterator[Finding]:
    owners = metadata.packages_distributions()
    for name in SHARED_NAMES:
        others, where = other_owners(name, owners), location(name)
        if others:
            whose = "ours" if is_ours(name) else "theirs"
            detail = f"also installed by {', '.join(others)}; Python imports {whose}"
            yield Finding("names", name, "problem", detail, how_to_part(others))
        elif is_ours(name):
            yield Finding("names", name, "ok", str(where))
        elif where is None:
            yield Finding("names", name, "problem", "cannot be imported", AGAIN)
        else:
            detail = f"comes from {where}, not from dsp-gym"
            yield Finding("names", name, "problem", detail, "Start from another folder.")


def _data() -> Finding:
    variable = "DSP_GYM_DATA"
    folder = os.environ.get(variable)
    if folder is None:
        detail = f"{variable} is not set: recorded traces are found by full path only"
        return Finding("data", variable, "missing", detail, f"export {variable}=/path/to/data")
    if not Path(folder).is_dir():
        return Finding(
            "data", variable, "problem", f"{folder} is no folder", f"export {variable}=/path"
        )
    return Finding("data", variable, "ok", folder)
