"""What is written down about a local cluster, and what speaks against starting one."""

from __future__ import annotations

import contextlib
import fcntl
import shlex
from collections.abc import Iterator

from pydantic import Field, ValidationError

from dsp_gym.backends.flink.local import processes
from dsp_gym.backends.flink.local.distribution import FlinkLibraries
from dsp_gym.backends.flink.local.launch import Home
from dsp_gym.backends.flink.local.processes import wait_until
from dsp_gym.backends.flink.local.settings import ClusterSettings, Ports
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.config.model import ConfigModel
from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import FlinkError, StorageError


class ClusterState(ConfigModel):
    """What was started in a home folder."""

    settings: ClusterSettings = Field(description="as asked for")
    ports: Ports = Field(description="as chosen")
    flink_version: str = Field(description="of the libraries it was started from")


@contextlib.contextmanager
def locked(home: Home) -> Iterator[None]:
    """One `up` or `down` of a folder at a time; a second one waits.

    Yields:
        None, with the lock of the folder held until the block ends.
    """
    try:
        home.folder.mkdir(parents=True, exist_ok=True)
        lock = (home.folder / "lock").open("w")
    except PermissionError as error:
        raise StorageError(
            f"cannot be written: {error.strerror}",
            file=home.folder,
            remedy="Name a folder that can: --home FOLDER",
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_state(home: Home) -> ClusterState | None:
    """What was started in a folder.

    Returns:
        The cluster's parts, ports and settings; None if nothing was started there.
    """
    try:
        content = home.state_file.read_bytes()
    except OSError:
        return None
    try:
        return ClusterState.model_validate(parse_json(content))
    except (ValueError, ValidationError) as error:
        raise FlinkError(
            "has no list of the started processes: another release wrote it, or it is truncated",
            file=home.state_file,
            remedy=f"End the processes named in {home.folder / 'pids'}, then delete this file.",
        ) from error


def check_same(
    home: Home,
    state: ClusterState,
    settings: ClusterSettings | None,
    libraries: FlinkLibraries,
) -> None:
    """Refuse a running cluster of another Flink, or of other settings than are asked for."""
    remedy = f"End it first: dsp-gym flink down --home {shlex.quote(str(home.folder))}"
    if state.flink_version != libraries.version:
        raise FlinkError(
            f"a cluster of Flink {state.flink_version} runs here, {libraries.version} is installed",
            file=home.folder,
            remedy=remedy,
        )
    if settings is None or settings == state.settings:
        return
    here, asked = state.settings.model_dump(), settings.model_dump()
    differs = ", ".join(
        f"{key} is {here[key]}, asked for {asked[key]}" for key in here if here[key] != asked[key]
    )
    raise FlinkError(
        f"a cluster with other settings runs here: {differs}",
        file=home.folder,
        remedy=f"{remedy}, or take another folder: --home FOLDER",
    )


def choose_ports(settings: ClusterSettings) -> Ports:
    """Take the ports asked for, and free ones for those left open.

    Returns:
        The ports of all parts.
    """
    asked = {
        "rest": settings.rest_port,
        "rpc": settings.rpc_port,
        "prometheus": settings.prometheus_port,
        "jobmanager_reporter": settings.jobmanager_reporter_port,
        "taskmanager_reporter": settings.taskmanager_reporter_port,
    }
    taken = set(asked.values())
    free = (port for port in processes.free_ports(2 * len(asked)) if port not in taken)
    return Ports(**{name: port or next(free) for name, port in asked.items()})


def check_port(port: int, name: str, remedy: str) -> None:
    """Refuse a port that is in use, and name the Flink that uses it."""
    # The socket of a part that was killed lingers for a moment.
    if wait_until(lambda: processes.is_port_free(port), 1.0):
        return
    who = "another program"
    with contextlib.suppress(FlinkError):
        rest = FlinkRest(f"http://127.0.0.1:{port}", timeout_s=1.0)
        with rest.reading():
            version = rest.overview()["flink-version"]
        who = f"a Flink {version} that this folder did not start"
    raise FlinkError(f"port {port} ({name}) is taken by {who}", remedy=f"End it, or {remedy}.")
