"""Which model reads which folder of `configs/`.

The models stand beside the code they configure, above this package, so they are named here and
resolved when a file of their kind is read.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import ConfigError, did_you_mean

KINDS: dict[str, str] = {
    "jobs": "dsp_gym.job.spec:JobSpec",
    "loads": "dsp_gym.loads.spec:LoadConfig",
    "policies": "dsp_gym.policies.config:PolicyConfig",
    "guardrails": "dsp_gym.guardrails.config:GuardrailsConfig",
    "experiments": "dsp_gym.experiments.experiment:ExperimentConfig",
    "benchmarks": "dsp_gym.evaluation.config:BenchmarkConfig",
    "frontiers": "dsp_gym.evaluation.frontier.config:FrontierConfig",
    "referees": "dsp_gym.evaluation.referee.config:RefereeConfig",
    "calibrations": "dsp_gym.calibration.config:CalibrationConfig",
    "shadow": "dsp_gym.control.config:RunConfig",
    "validations": "dsp_gym.evaluation.validation:ValidationConfig",
    "recordings": "dsp_gym.backends.flink.recording.plan:RecordConfig",
    "datasets": "spark_pipelines.config:DatasetConfig",
    "rollouts": "dsp_gym.datasets.rollouts.plan:RolloutConfig",
}


def model_of(kind: str) -> type[ConfigModel]:
    """The model that reads files of this kind.

    Returns:
        The class, imported on demand.
    """
    if kind not in KINDS:
        raise ConfigError(f"unknown kind '{kind}'", remedy=did_you_mean(kind, KINDS))
    module, _, name = KINDS[kind].partition(":")
    model: type[ConfigModel] = getattr(importlib.import_module(module), name)
    return model


def kind_of(file: Path) -> str:
    """The kind of a file: as its comment `# kind: KIND` says, else as its folders are named.

    The comment stands among the comments that begin the file. Without one, the nearest folder that
    is named like a kind decides.

    Returns:
        The name of the kind, such as `jobs`.

    Raises:
        ConfigError: Neither says, or the comment names no kind, or another one than the folder.
    """
    said, folders = _commented(file), file.absolute().parent.parts
    if said is not None:
        model_of(said)
        if folders[-1] in KINDS and folders[-1] != said:
            raise ConfigError(
                f"its folder is one of '{folders[-1]}'",
                file=file,
                key="# kind",
                value=said,
                remedy="Move the file, or correct the comment.",
            )
        return said
    for folder in reversed(folders):
        if folder in KINDS:
            return folder
    if not file.exists():
        raise ConfigError("there is no such file", file=file)
    raise ConfigError(
        f"its kind is unknown: no folder above it is named {', '.join(KINDS)}",
        file=file,
        remedy="Begin it with a comment '# kind: KIND', or name the kind: dsp-gym config check "
        "FILE --kind KIND",
    )


def _commented(file: Path) -> str | None:
    """The kind that the comments at the beginning of a file name."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):  # the reader of the file says so
        return None
    for line in lines:
        if line.strip() and not line.startswith("#"):
            return None
        if found := re.fullmatch(r"#\s*kind:\s*(\S+)\s*", line):
            return found[1]
    return None
