"""What happens to an error on the command line: one screen on stderr, and an exit code.

2: something the user can put right. 130: interrupted, by Ctrl-C or SIGTERM. 1: a fault of ours.
"""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from dsp_gym.cli.earlier import earlier
from dsp_gym.errors import DspGymError, MissingExtraError, StorageError
from dsp_gym.redaction import redacted

USER_ERROR, OWN_FAULT, INTERRUPTED = 2, 1, 130

_EXTRA_OF_MODULE = {
    "PIL": "video",
    "mlflow": "registry",
    "pandas": "registry",
    "matplotlib": "train",
    "moviepy": "video",
    "pygame": "video",
    "sb3_contrib": "train",
    "stable_baselines3": "train",
    "torch": "train",
}

_STORAGE_REMEDIES = {
    errno.ENOENT: "Check the path.",
    errno.EEXIST: "A file is in the way: name another folder.",
    errno.EISDIR: "Name a file, not a folder.",
    errno.ENOTDIR: "Name a folder, not a file.",
    errno.ENOSPC: "Free some space on that disk.",
    errno.EDQUOT: "Free some of your quota on that disk.",
    errno.EROFS: "Choose a folder on a disk that can be written to.",
    errno.EACCES: "Choose a folder you may use, or change its permissions.",
    errno.EPERM: "Choose a folder you may use, or change its permissions.",
    errno.EIO: "Check that disk.",
}


_NOTHING_KEPT = "; nothing was written"
_AFTER_INTERRUPT = {
    # These have said themselves what they keep.
    "dataset": "",
    "evaluate": "",
    "tune": "",
    "validate": "",
    # These write as they go.
    "record": "; finished runs are in the recording's folder",
    "rollout": "; finished episodes are kept, and the same command continues",
    "shadow": "; the journal holds every decision that was made",
    "train": "; the last checkpoint is kept, and --resume continues from it",
    "decide": "; answers that were printed stand, no file was written",
    "inspect": "; repaired segments stay, each beside its NAME.damaged",
    # A cluster outlives the command.
    "flink": "; dsp-gym flink status lists the running jobs",
}
"""What an interrupted command leaves; the others write their results last."""


class Commands(TyperGroup):
    """The group of all commands, which turns errors into messages."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # typer's own context class is private
        """Let `--debug` stand anywhere: people add it to the end of a line that failed.

        Returns:
            The arguments that typer did not consume.
        """
        if "--debug" in args:
            args = ["--debug", *(arg for arg in args if arg != "--debug")]
        return super().parse_args(ctx, args)

    def resolve_command(  # type: ignore[override]  # as above
        self, ctx: typer.Context, args: list[str]
    ) -> tuple[str | None, object, list[str]]:
        """Find the command; of an earlier name say the present one.

        Returns:
            Its name, the command, and the arguments that are left.
        """
        said = earlier(args)
        if said is not None:
            ctx.fail(said)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # as above
        """Run the command, and turn its errors into messages.

        Returns:
            The command's own result.
        """
        try:
            with terminated_as_interrupted():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            command = ctx.invoked_subcommand or ""
            typer.echo(f"Interrupted{_AFTER_INTERRUPT.get(command, _NOTHING_KEPT)}.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if ctx.params.get("debug") or _belongs_to_typer(error):
                raise
            known = as_user_error(error)
            if known is not None:
                typer.echo(f"{type(known).__name__}: {known}", err=True)
                raise typer.Exit(USER_ERROR) from None
            typer.echo(
                f"{redacted(f'{type(error).__name__}: {error}')}\n"
                "This is a bug in dsp-gym. Run the same command with --debug for the traceback.",
                err=True,
            )
            raise typer.Exit(OWN_FAULT) from None


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """End a command on a service manager's SIGTERM as on Ctrl-C, with what it has kept."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):  # a shell's background job ignores Ctrl-C
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def as_user_error(error: Exception) -> DspGymError | None:
    """Turn an error into one that the user can put right.

    Returns:
        The error to show in place of a traceback; None for a fault of the program.
    """
    if isinstance(error, DspGymError):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        extra = _EXTRA_OF_MODULE.get(error.name.partition(".")[0])
        return None if extra is None else MissingExtraError(extra, "this command")
    if isinstance(error, RuntimeError) and "cannot cache function" in str(error):  # numba's words
        return StorageError(
            "the compiled simulation cannot be kept: neither the package's folder nor the user's "
            "cache folder can be written to",
            remedy="Name a folder that can: export NUMBA_CACHE_DIR=/a/folder/you/can/write",
        )
    if isinstance(error, OSError) and error.errno in _STORAGE_REMEDIES:
        return StorageError(
            error.strerror or str(error),
            file=error.filename,
            remedy=_STORAGE_REMEDIES[error.errno],
        )
    return None


def _belongs_to_typer(error: Exception) -> bool:
    """Recognise usage errors, exits and a closed pipe, which typer shows itself."""
    if isinstance(error, OSError):
        return error.errno == errno.EPIPE
    return type(error).__module__.partition(".")[0] == "typer"
