"""The studies `dsp-gym reproduce` knows, each a function from the data folder to its checks."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dsp_gym.errors import ConfigError, MissingExtraError, did_you_mean
from dsp_gym.loads import traces


@dataclass(frozen=True, slots=True)
class Check:
    """A published claim, what we get, and whether that is within the tolerance."""

    name: str  # study/what, such as justin-micro/read-sustained
    source: str  # paper and section, or data file
    claim: str  # the claim in words
    published: str | float
    ours: str | float | None
    tolerance: str
    passed: bool | None  # None: only reported, or skipped
    used_in_fit: bool  # a job file's parameters were fitted to it
    note: str | None = None  # why it was skipped, or what to know about it

    @property
    def failed(self) -> bool:
        """True where the claim is checked and not met."""
        return self.passed is False


def skipped(name: str, source: str, claim: str, published: str | float, why: str) -> Check:
    """A check that could not be made here.

    Returns:
        A check whose `passed` and `ours` are None, with the reason in its note.
    """
    return Check(name, source, claim, published, None, "–", None, False, f"skipped: {why}")


Study = Callable[[Path | None], list[Check]]


def needs(
    file: str, name: str, source: str, claim: str, published: str | float
) -> Callable[[Callable[[Path], list[Check]]], Study]:
    """Skip a study, with one check that says why, where its data or an extra are missing.

    Args:
        file: of the data folder, without which there is nothing to compare with.
        name: of the one check.
        source: paper and section, or data file.
        claim: the claim in words.
        published: what was published.

    Returns:
        A decorator of a function from the data folder to checks.
    """

    def decorate(study: Callable[[Path], list[Check]]) -> Study:
        @functools.wraps(study)
        def run(data: Path | None) -> list[Check]:
            if data is None or not (data / file).is_file():
                why = "no data folder; name one with DSP_GYM_DATA"
                return [skipped(name, source, claim, published, why)]
            try:
                return study(data)
            except MissingExtraError as error:
                return [skipped(name, source, claim, published, str(error))]

        return run

    return decorate


STUDIES: dict[str, tuple[str, str]] = {
    "justin-micro": (
        "dsp_gym.studies.reproduce.justin_micro:justin_micro",
        "Justin, section 3: which tasks and memory sustain Read, Write and Update",
    ),
    "justin-nexmark": (
        "dsp_gym.studies.reproduce.justin_nexmark:justin_nexmark",
        "Justin, section 5: finals, steps, memory levels and savings on Nexmark",
    ),
    "ds2-word-count": (
        "dsp_gym.studies.reproduce.ds2:ds2_word_count",
        "DS2, sections 5.2 and 5.3: word count on Heron and on Flink",
    ),
    "ds2-convergence": (
        "dsp_gym.studies.reproduce.ds2:ds2_convergence",
        "DS2, section 5.4: six Nexmark queries from six initial parallelisms",
    ),
    "dhalion": (
        "dsp_gym.studies.reproduce.dhalion:dhalion_word_count",
        "DS2, section 5.2: Dhalion on the Heron word count, beside DS2's one step",
    ),
    "streambed": (
        "dsp_gym.studies.reproduce.streambed:streambed",
        "StreamBed: throughput by slots and memory of q1, q5, q11, each slot count left out",
    ),
    "streambed-planner": (
        "dsp_gym.studies.reproduce.streambed_planner:streambed_planner",
        "StreamBed: BIDS2 on measured rates, and slots for ten times its testbed",
    ),
    "streambed-tables": (
        "dsp_gym.studies.reproduce.streambed_tables:streambed_tables",
        "StreamBed, section 8.2: Tables 3 and 4 and Figure 6 on the simulated queries",
    ),
    "demeter": (
        "dsp_gym.studies.reproduce.demeter:demeter",
        "Demeter: an 18 h run under two policies, its outages and slots replayed",
    ),
    "demeter-autoscalers": (
        "dsp_gym.studies.reproduce.demeter_autoscalers:demeter_autoscalers",
        "Demeter: the operator's autoscaler and reactive HPA as policies, 18 h, five seeds",
    ),
    "flink-autoscaler": (
        "baselines.studies.autoscaler_checks:flink_autoscaler",
        "Flink's autoscaler 1.15.0: facts of its unit tests, decisions and traces of its classes",
    ),
    "rocksdb-curves": (
        "dsp_gym.studies.reproduce.rocksdb_curves:rocksdb_curves",
        "RocksDB's miss ratios over the size of its block cache, each curve left out",
    ),
    "intervals": (
        "dsp_gym.studies.reproduce.intervals:intervals",
        "the 90 % intervals of predicted rates: how often they hold what was measured",
    ),
    "flink-runs": (
        "dsp_gym.studies.reproduce.flink_runs:flink_runs",
        "a real Flink's runs: calibrated on a third of them, the rest predicted",
    ),
}
"""Name to function (imported when run) and a sentence."""


def studies() -> dict[str, str]:
    """The sentence of every study by name.

    Returns:
        Sentences by name, in the order in which `dsp-gym reproduce` lists them.
    """
    return {name: about for name, (_, about) in STUDIES.items()}


def reproduce(name: str | None = None, data: Path | None = None) -> list[Check]:
    """The checks of one study, or of all.

    Args:
        name: the study; None runs all of them.
        data: folder of measured data; None takes `data_folder()`.

    Returns:
        The checks, in the order of the studies.

    Raises:
        ConfigError: No study has that name.
    """
    if name is not None and name not in STUDIES:
        raise ConfigError(f"there is no study '{name}'", remedy=did_you_mean(name, STUDIES))
    folder = data_folder() if data is None else data
    checks = []
    for study in STUDIES if name is None else (name,):
        module, _, function = STUDIES[study][0].partition(":")
        run: Study = getattr(importlib.import_module(module), function)
        checks += run(folder)
    return checks


def data_folder() -> Path | None:
    """The folder of measured data: the one DSP_GYM_DATA names, if it is there.

    Returns:
        The folder; None if it is not there.

    Raises:
        ConfigError: DSP_GYM_DATA names something that is not a folder.
    """
    folder = traces.data_folder()
    if folder is not None and not folder.is_dir():
        raise ConfigError(
            "DSP_GYM_DATA does not name a folder",
            value=str(folder),
            remedy="Name the folder of measured data, or unset the variable.",
        )
    return folder
