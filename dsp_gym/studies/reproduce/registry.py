"""The checks of `dsp-gym reproduce`, and the studies that make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

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
    used_in_fit: bool = False  # a job file's parameters were fitted to it
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
    return Check(name, source, claim, published, None, "–", None, note=f"skipped: {why}")


@dataclass(frozen=True, slots=True)
class Study:
    """A study, and the one check that stands in its place where its data or an extra is missing."""

    makes: str  # module:function, from the data folder to checks; imported when it is run
    about: str
    file: str | None = None  # of the data folder, without which there is nothing to compare with
    instead: tuple[str, str, str, str | float] = ("", "", "", "")  # name to published, of a Check
    takes: tuple[str, ...] = ()  # names of files: a table read in place of its own, a page
    rows: str | None = None  # module:function, from the data folder and a table to its JSON

    def checks(
        self, data: Path | None, given: Path | None = None, report: Path | None = None
    ) -> list[Check]:
        """Make the checks.

        Args:
            data: folder of measured data, if there is one.
            given: the table that the study takes.
            report: where its page goes.

        Returns:
            Those of the study, or one that says why it was skipped.
        """
        has_data = data is not None and self.file is not None and (data / self.file).is_file()
        if self.file is not None and given is None and not has_data:
            return [skipped(*self.instead, "no data folder; name one with DSP_GYM_DATA")]
        made: Callable[..., list[Check]] = _function(self.makes)
        try:
            if report is not None:
                return made(data, given, report)
            return made(data) if given is None else made(data, given)
        except MissingExtraError as error:
            return [skipped(*self.instead, str(error))]


def _function(place: str) -> Callable[..., Any]:
    """Of `module:function`."""
    module, _, function = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


STUDIES = {
    "justin-micro": Study(
        "dsp_gym.studies.reproduce.justin:justin_micro",
        "Justin, section 3: which tasks and memory sustain Read, Write and Update",
    ),
    "justin-nexmark": Study(
        "dsp_gym.studies.reproduce.justin:justin_nexmark",
        "Justin, section 5: finals, steps, memory levels and savings on Nexmark",
    ),
    "ds2-word-count": Study(
        "dsp_gym.studies.reproduce.ds2:ds2_word_count",
        "DS2, sections 5.2 and 5.3: word count on Heron and on Flink",
    ),
    "ds2-convergence": Study(
        "dsp_gym.studies.reproduce.ds2:ds2_convergence",
        "DS2, section 5.4: six Nexmark queries from six initial parallelisms",
    ),
    "dhalion": Study(
        "dsp_gym.studies.reproduce.ds2:dhalion_word_count",
        "DS2, section 5.2: Dhalion on the Heron word count, beside DS2's one step",
    ),
    "daedalus": Study(
        "dsp_gym.studies.reproduce.since_2022:daedalus",
        "Daedalus: resources and latency beside a static deployment and HPA, in kind",
    ),
    "conttune": Study(
        "dsp_gym.studies.reproduce.since_2022:conttune",
        "ContTune: reconfigurations after steps of the load beside DS2's, in kind",
    ),
    "streambed": Study(
        "dsp_gym.studies.reproduce.streambed:streambed",
        "StreamBed: throughput by slots and memory of q1, q5, q11, each slot count left out",
        "streambed_mst.csv",
        (
            "streambed/mst",
            "StreamBed, streambed_mst.csv",
            "throughput of q1, q5 and q11 by slots and memory",
            "122 measurements",
        ),
    ),
    "streambed-planner": Study(
        "dsp_gym.studies.reproduce.streambed_planner:streambed_planner",
        "StreamBed: BIDS2 on measured rates, and slots for ten times its testbed",
        instead=(
            "streambed-planner/slots",
            "StreamBed, section 6",
            "slots for a rate far above the testbed's",
            "–",
        ),
    ),
    "streambed-tables": Study(
        "dsp_gym.studies.reproduce.streambed_planner:streambed_tables",
        "StreamBed, section 8.2: Tables 3 and 4 and Figure 6 on the simulated queries",
        instead=(
            "streambed-tables/all",
            "StreamBed, section 8.2",
            "Tables 3 and 4, Figure 6",
            "–",
        ),
    ),
    "demeter": Study(
        "dsp_gym.studies.reproduce.demeter:demeter",
        "Demeter: an 18 h run under two policies, its outages and slots replayed",
        "demeter_cars_static24.csv",
        (
            "demeter/late",
            "Demeter, results of CARS (demeter_cars_*.csv)",
            "an 18 h run with its recorded outages and slots replayed",
            "3 runs of 18 h",
        ),
    ),
    "demeter-autoscalers": Study(
        "dsp_gym.studies.reproduce.demeter:demeter_autoscalers",
        "Demeter: the operator's autoscaler and reactive HPA as policies, 18 h, five seeds",
        "demeter_cars_static24.csv",
        (
            "demeter-autoscalers/late",
            "Demeter, results of CARS (demeter_cars_*.csv)",
            "published autoscalers as policies on the calibrated job",
            "3 runs of 18 h",
        ),
    ),
    "flink-autoscaler": Study(
        "baselines.studies.autoscaler_checks:flink_autoscaler",
        "Flink's autoscaler 1.15.0: facts of its unit tests, decisions and traces of its classes",
        "flink_autoscaler_cases.json",
        (
            "flink-autoscaler/facts",
            "Flink Kubernetes Operator, flink-autoscaler",
            "facts of its unit tests",
            211,
        ),
    ),
    "rocksdb-curves": Study(
        "dsp_gym.studies.reproduce.rocksdb_curves:rocksdb_curves",
        "RocksDB's miss ratios over the size of its block cache, each curve left out",
        "rocksdb_miss_ratio_curves.csv",
        (
            "rocksdb-curves/fit",
            "rocksdb_miss_ratio_curves.csv",
            "hit rates of a block cache at 21 sizes",
            "4 curves",
        ),
    ),
    "khaos": Study(
        "dsp_gym.studies.reproduce.khaos:khaos",
        "Khaos: time from a failure until a job has caught up, each checkpoint interval left out",
        "khaos_iot_recoveries.csv",
        (
            "khaos/iot-median",
            "Khaos, data/iot/failures.txt",
            "recovery times of a job at five checkpoint intervals",
            "60 failures",
        ),
        takes=("recoveries",),
    ),
    "espa": Study(
        "dsp_gym.studies.reproduce.espa:espa",
        "six autoscalers on Nexmark Q1, Q3, Q11, each run repeated on jobs of the others' runs",
        "espa_runs.csv.gz",
        (
            "espa/q1-rank",
            "github.com/delftdata/espa-autoscaling at 2290fa6",
            "rank of mean TaskManagers over the settings of Q1",
            "26 runs",
        ),
        takes=("runs", "report"),
        rows="dsp_gym.studies.reproduce.espa:rows",
    ),
    "intervals": Study(
        "dsp_gym.studies.reproduce.predictions:intervals",
        "the 90 % intervals of predicted rates: how often they hold what was measured",
        "streambed_mst.csv",
        (
            "intervals/all",
            "streambed_mst.csv, flink_runs/",
            "90 % intervals hold the truth",
            "90 %",
        ),
    ),
    "flink-runs": Study(
        "dsp_gym.studies.reproduce.predictions:flink_runs",
        "a real Flink's runs: calibrated on a third of them, the rest predicted",
        "flink_runs/runs.csv",
        (
            "flink-runs/held-out",
            "flink_runs/runs.csv, samples.csv.gz",
            "sustained rate, busyness, hit rate and read latency of runs held out of the fit",
            "50 runs",
        ),
    ),
}
"""By name, in the order in which they are listed."""


def studies() -> dict[str, str]:
    """The sentence of every study by name.

    Returns:
        Sentences by name, in the order in which `dsp-gym reproduce` lists them.
    """
    return {name: study.about for name, study in STUDIES.items()}


def reproduce(
    name: str | None = None,
    data: Path | None = None,
    recoveries: Path | None = None,
    runs: Path | None = None,
    report: Path | None = None,
) -> list[Check]:
    """The checks of one study, or of all.

    Args:
        name: the study; None runs all of them.
        data: folder of measured data; None takes `data_folder()`.
        recoveries: a table in place of the study's own, for one that takes it.
        runs: likewise, of runs.
        report: where the study's page goes, for one that makes it.

    Returns:
        The checks, in the order of the studies.

    Raises:
        ConfigError: No study has that name, or it takes no such file.
    """
    table = _table_of(name, recoveries, runs, report)
    folder = data_folder() if data is None else data
    chosen = STUDIES.values() if name is None else [STUDIES[name]]
    return [check for study in chosen for check in study.checks(folder, table, report)]


def rows(
    name: str | None,
    data: Path | None = None,
    runs: Path | None = None,
    report: Path | None = None,
) -> Any | None:
    """What a study says in JSON in place of its checks.

    Args:
        name: the study.
        data: folder of measured data; None takes `data_folder()`.
        runs: a table in place of the study's own.
        report: where the study's page goes.

    Returns:
        Plain values; None for a study that has its checks only.
    """
    _table_of(name, None, runs, report)
    made = STUDIES[name].rows if name is not None else None
    if made is None:
        return None
    return _function(made)(data_folder() if data is None else data, runs, report)


def _table_of(
    name: str | None, recoveries: Path | None, runs: Path | None, report: Path | None
) -> Path | None:
    """The table given; refuses a file that the study does not take."""
    if name is not None and name not in STUDIES:
        raise ConfigError(f"there is no study '{name}'", remedy=did_you_mean(name, STUDIES))
    takes = STUDIES[name].takes if name is not None else ()
    for option, file in (("recoveries", recoveries), ("runs", runs), ("report", report)):
        if file is not None and option not in takes:
            able = next(known for known, study in STUDIES.items() if option in study.takes)
            what = "makes a page" if option == "report" else f"takes a table of {option}"
            raise ConfigError(
                f"only the study '{able}' {what}",
                value=str(file),
                remedy=f"Name it: dsp-gym reproduce {able} --{option} FILE",
            )
    return recoveries if recoveries is not None else runs


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
