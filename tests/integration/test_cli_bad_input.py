"""Typical mistakes in arguments and files, over all commands.

`tests/bad_snapshots.py` has the cases of `decide` and `simulate`, `tests/unit/test_bad_input.py`
more files of jobs, loads and experiments.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.cli.errors import Commands
from tests.bad_input import (
    BENCHMARK,
    NO_POLICY,
    NOT_UTF8,
    Case,
    assert_refused,
    case,
    copied,
    write_common,
)
from tests.bad_snapshots import DECIDE, SIMULATE

ARCHIVE = """\
name: old
sources:
  - {kind: archives, folder: archive, files: "*.csv", job: job.yaml}
"""
KUBERNETES = """\
job: job.yaml
policy: ds2
where: {kubernetes: {kubeconfig: KUBECONFIG, name: words, prometheus_url: "http://127.0.0.1:9"}}
"""
NO_JOB = "there is no shipped configuration 'nope' of kind 'jobs'"
NO_CLUSTER = ("folder: no Flink cluster was started here", "dsp-gym flink up")
NO_DATASET = ("is not a dataset", "dsp-gym dataset build CONFIG")
NO_JOURNAL = ("holds no journal", "Name the folder that `dsp-gym shadow` wrote")


SIZES = {
    "mst without a number": case(
        "plan job.yaml --configuration map", "'map'", "VERTEX=PARALLELISM"
    ),
    "mst of none": case("plan job.yaml --configuration map=0", "vertex 'map'", "between 1 and"),
    "mst of a half": case("plan job.yaml --configuration map=2.5", "'map=2.5'", "For instance"),
    "mst of words": case(
        "plan job.yaml --configuration map=1@x", "'map=1@x'", "--configuration takes"
    ),
    "mst of NaN": case("plan job.yaml --slot-memory-mib nan", "--slot-memory-mib"),
    "mst without slots": case("plan job.yaml --slots 0", "--slots", "greater than or equal to 1"),
    "plan at a negative rate": case("plan job.yaml --rate -5", "'rate'", "-5", "--rate 50000"),
    "plan at NaN": case("plan job.yaml --rate nan", "nan", "must be above 0"),
    "plan at words": case("plan job.yaml --rate fast", "--rate", "valid number"),
    "plan at a level": case("plan job.yaml --rate 5 --memory 5", "levels -1 (none) to 2"),
    "plan elsewhere": case("plan job.yaml --rate 5 --testbed xyz", "'xyz'", "simulated or flink"),
    "plan of nothing": case("plan nope --rate 5", NO_JOB),
}

SERIES = "t_s,offered_events_per_s,throughput_events_per_s,throughput_samples,"
SERIES += "consumer_lag_records,latency_ms,cpu_load,task_slots\n0,1,1,30,0,5,0.1,2\n"

BACKTEST = {
    "backtest of nothing": case("backtest", "needs folders or a Prometheus", "Name the folder of"),
    "backtest of both": case(
        "backtest journal --prometheus http://127.0.0.1:9", "needs folders or a Prometheus"
    ),
    "backtest of no source": case("backtest folder", "'folder'", "is no journal, recording"),
    "backtest of nowhere": case("backtest nope", "'nope'", "is no journal", "DIR/JOB/series.csv"),
    "backtest of a file": case("backtest file", "'file'", "is no journal"),
    "backtest of several": case(
        "backtest flink-q11-day", "is several things: journal", "Write which one: journals/flink"
    ),
    "backtest of few": case(
        "backtest journal --policies ds2", "journal: does not hold the configuration", "--jobs FILE"
    ),
    "backtest of one row": case(
        "backtest tables", "needs two rows or more", tables___series__csv=SERIES
    ),
    "backtest with a stranger": case("backtest journals/flink-q11-day --policies ds3", *NO_POLICY),
    "backtest with one twice": case(
        "backtest journals/flink-q11-day --policies ds2,ds2", "is used twice"
    ),
    "backtest with the future": case(
        "backtest journals/flink-q11-day --policies clairvoyant", "needs the future load"
    ),
    "backtest without policies": case(
        "backtest journals/flink-q11-day --policies ,", "--policies", "ds2,planner"
    ),
    "backtest of another job": case(
        "backtest journals/flink-q11-day --jobs nexmark-q1", "the journal is of a job with"
    ),
    "backtest of two jobs": case(
        "backtest journals/flink-q11-day --jobs a --jobs b", "several job files", "Name one file"
    ),
    "backtest of tables with a job": case(
        "backtest tables --jobs nexmark-q1",
        "belongs to journals, recordings",
        tables___series__csv=SERIES,
    ),
    "backtest of a host": case(
        "backtest --prometheus 127.0.0.1:9 --jobs folder", "begins with http://"
    ),
    "backtest without job files": case(
        "backtest --prometheus http://127.0.0.1:9 --jobs folder", "--jobs", "holds no job file"
    ),
    "backtest of labels": case(
        "backtest journal --labels a=b", "--labels", "belongs to --prometheus"
    ),
    "backtest of minus a day": case("backtest journals/flink-q11-day --days -1", "--days"),
    "backtest in guardrails of nothing": case(
        "backtest journals/flink-q11-day --policies ds2 --guardrails nope", "nope"
    ),
    "backtest that follows a server": case(
        "backtest --follow --prometheus http://127.0.0.1:9", "--follow", "dsp-gym shadow"
    ),
}

COMPARE = {
    "evaluate nothing": case("evaluate empty.yaml", "empty.yaml: is empty"),
    "evaluate a job": case("evaluate job.yaml", "job.yaml", "the key 'policies' is missing"),
    "evaluate a stranger": case("evaluate bench.yaml --policies ds3 --track none", *NO_POLICY),
    "evaluate into a file": case(
        "evaluate bench.yaml --out file --track none", "'file' is a file, not a folder"
    ),
    "evaluate a trace": case(
        "evaluate in.yaml --track none",
        "t.csv: is not UTF-8 text: byte 0xff at line 3, column 4",
        in__yaml=BENCHMARK.replace("[constant]", "[{name: t, load: {form: trace, path: t.csv}}]"),
        t__csv=b"t_seconds,rate\n0,1\n10,\xff\n",
    ),
    "master": case(
        "evaluate bench.yaml --master local[2] --workers 2 --track none", "spark-defaults.conf"
    ),
    "scorecard of nothing": case("evaluate empty.json", "empty.json: is not valid JSON"),
    "scorecard of another kind": case("evaluate list.json", "holds no results of dsp-gym evaluate"),
    "scorecard that is not there": case("evaluate no.json", "no.json: there is no such file"),
    "no such benchmark": case("evaluate core-v9", "Did you mean 'core-v"),
    "tune a stranger": case("tune ds3 bench.yaml", *NO_POLICY),
    "tune on nothing": case("tune ds2 nope", "there is no benchmark or experiment 'nope'"),
    "tune what cannot be": case("tune static bench.yaml", "no search space is known for 'static'"),
    "rollout of a stranger": case(
        "rollout in.yaml",
        *NO_POLICY,
        in__yaml="policies: [ds3]\njobs: [job.yaml]\nloads: {train: {loads: [constant]}}\n",
    ),
    "rollout of chance": case(
        "rollout in.yaml",
        "epsilon",
        "2",
        in__yaml="policies: [ds2]\njobs: [job.yaml]\nloads: {train: {loads: [constant]}}\n"
        "epsilon: 2\n",
    ),
    "train nothing": case("train empty.yaml", "empty.yaml: is empty"),
    "train into a file": case("train quickstart --out file --track none", "file", "it is a file"),
    "train twice": case(
        "train quickstart --resume --overwrite --out new --track none", "Give one of them"
    ),
}

BESIDE = {
    "shadow of nothing": case("shadow empty.yaml", "empty.yaml: is empty"),
    "shadow of a stranger": case("shadow shadow.yaml --policies ds3", *NO_POLICY),
    "shadow not UTF-8": case("shadow latin.yaml", "latin.yaml", *NOT_UTF8),
    "misspelt": case("shadow flink-q1l", "Did you mean 'flink-q11'?"),
    "recording that is not there": case("shadow shadow.yaml no", "neither a load nor a recording"),
    "recording of another kind": case("shadow shadow.yaml journal", "is no recording"),
    "recording that is a file": case(
        "shadow shadow.yaml file", "file: holds text, expected a mapping"
    ),
    "manifest not UTF-8": case(
        "shadow shadow.yaml .",
        "cannot be read: not UTF-8 text: byte 0xe9 at line 1",
        manifest__json=b'{"a": "\xe9"}',
    ),
    "load": case("shadow shadow.yaml diurnl", "'diurnl'", "Did you mean 'diurnal'"),
    "duration": case("shadow shadow.yaml constant --duration long", "'--duration'", "'long'"),
    "journal in a file": case(
        "shadow shadow.yaml constant --steps 1 --journal file",
        "file: File exists. A file is in the way: name another folder.",
    ),
    "mode": case("shadow shadow.yaml --mode observe", "'observe'", "'off', 'shadow', 'advise'"),
    "acting without leave": case("shadow shadow.yaml --mode active", "--apply is missing"),
    "apply of nothing": case("shadow shadow.yaml --mode off --apply", "Leave --apply out"),
    "acting beside others": case("shadow shadow.yaml --apply", "where: {lease:", "add --sole"),
    "two ends": case("shadow shadow.yaml --steps 2 --duration 1h", "Give one of them"),
    "speed of nothing": case("shadow shadow.yaml --speed 2", "a load, or a recording's folder"),
    "no port": case("shadow shadow.yaml --port 99999", "--port", "65535"),
    "no cluster": case("shadow shadow.yaml --duration -5s", "'--duration'", "'-5s'"),
    "kubeconfig not there": case(
        "shadow in.yaml --steps 1",
        "nowhere: there is no such file",
        "Name a kubeconfig",
        in__yaml=KUBERNETES.replace("KUBECONFIG", "nowhere"),
    ),
    "kubeconfig is a folder": case(
        "shadow in.yaml --steps 1",
        "folder: is a folder",
        "Name a kubeconfig",
        in__yaml=KUBERNETES.replace("KUBECONFIG", "folder"),
    ),
    "kubeconfig empty": case(
        "shadow in.yaml --steps 1",
        "empty.yaml: no API server is known from it",
        "Name a kubeconfig",
        in__yaml=KUBERNETES.replace("KUBECONFIG", "empty.yaml"),
    ),
    "kubeconfig not UTF-8": case(
        "shadow in.yaml --steps 1",
        "latin.yaml: no API server is known from it",
        "byte 0xe9",
        in__yaml=KUBERNETES.replace("KUBECONFIG", "latin.yaml"),
    ),
    "check a file": case("inspect file", "file: holds no journal"),
    "check nowhere": case("inspect no", "no: does not exist, so it holds no journal"),
    "check damage": case(
        "inspect damaged",
        "line 2: not UTF-8 text: byte 0xe9 at line 1, column 9",
        "Repair it: dsp-gym inspect damaged --repair",
    ),
    "repair nothing": case("inspect folder --repair", "folder", *NO_JOURNAL),
    "repair nowhere": case("inspect no --repair", "no: does not exist, so it holds no journal"),
}

DATA = {
    "dataset of nothing": case("dataset build empty.yaml", "empty.yaml: is empty"),
    "dataset in a file": case("dataset build q11-rollouts --out file", "file", "it is a file"),
    "column of an archive": case(
        "dataset build in.yaml --out new --track none",
        "archive/a.csv",
        "key 'value'",
        "has no column 'value'",
        "Did you mean 'values'?",
        in__yaml=ARCHIVE,
        archive___a__csv="t_s,vertex,subtask,metric,values\n0,map,0,busy,1\n",
    ),
    "words in an archive": case(
        "dataset build in.yaml --out new --track none",
        "archive/a.csv",
        "key 'value'",
        "expected a number",
        "'fast'",
        in__yaml=ARCHIVE,
        archive___a__csv="t_s,vertex,subtask,metric,value\n0,map,0,busy,fast\n",
    ),
    "archive of nothing": case(
        "dataset build in.yaml --out new --track none",
        "folder",
        "no file below it matches *.csv",
        in__yaml=ARCHIVE.replace("archive,", "folder,"),
    ),
    "export nothing": case("dataset export folder --out new", *NO_DATASET),
    "follow seldom": case("dataset build q11-rollouts --follow soon", "--follow", "valid number"),
    "calibrate nothing": case("calibrate", "Missing argument"),
    "calibrate two": case("calibrate cal.yaml t.csv", "exactly one source", cal__yaml=""),
    "calibrate on half a history": case(
        "calibrate http://127.0.0.1:1", "a history needs a job file", "dsp-gym discover"
    ),
    "calibrate with another's option": case(
        "calibrate cal.yaml --days 3", "'--days'", "does not apply to a calibration", cal__yaml=""
    ),
    "calibrate on a history of nothing": case(
        "calibrate http://127.0.0.1:1 --job nope", NO_JOB, "dsp-gym discover --help"
    ),
    "calibrate on other labels": case(
        "calibrate http://127.0.0.1:1 --job job.yaml --labels job=x",
        "'job' is no label of Flink's that is read",
    ),
    "discover nowhere": case("discover", "the place of the jobs is missing", "--prometheus URL"),
    "discover no URL": case("discover --flink here:8081", "'here:8081'", "http://127.0.0.1:8081"),
    "discover twice": case(
        "discover --flink http://127.0.0.1:1 --prometheus http://127.0.0.1:1", "both name the jobs"
    ),
    "discover with labels of nothing": case(
        "discover --flink http://127.0.0.1:1 --labels job_name=x", "belongs to --prometheus URL"
    ),
    "discover with an account of nothing": case(
        "discover --flink http://127.0.0.1:1 --kubeconfig x", "belongs to --selector LABELS"
    ),
    "discover into a file": case(
        "discover --flink http://127.0.0.1:1 --out file", "--out", "is a file, not a folder"
    ),
    "discover a cluster that is down": case(
        "discover --flink http://127.0.0.1:1", "Connection refused", "Is the cluster up?"
    ),
    "doctor of no URL": case("doctor --flink here:8081", "'here:8081'", "http://127.0.0.1:8081"),
    "calibrate without tables": case(
        "calibrate mst.csv",
        "the table 'operators' is missing",
        mst__csv="run_id,query,slot_memory_mb,mst_events_per_s\n1,q1,2048,5\n",
    ),
    "calibrate from nowhere": case("calibrate no.csv --query q1", "no.csv", "CSV"),
    "calibrate from nothing": case(
        "calibrate empty.csv --query q1",
        "empty.csv: has the columns of no table",
        "needs the columns",
    ),
    "calibrate from bytes": case(
        "calibrate t.csv",
        "t.csv: is not UTF-8 text: byte 0xff at line 2, column 3",
        t__csv=b"a,b\n1,\xff\n",
    ),
    "calibrate from a journal": case(
        "calibrate in.yaml",
        "journal: is no recording",
        in__yaml="job: flink-wordcount\nrecordings: [journal]\n",
    ),
    "calibrate how": case(
        "calibrate in.yaml",
        "key 'fit'",
        "'fourth'",
        in__yaml="job: flink-wordcount\nrecordings: [journal]\nfit: fourth\n",
    ),
    "record nothing": case("record empty.yaml", "empty.yaml: is empty"),
    "record what": case("record nope", "'nope' of kind 'recordings'"),
    "validate what": case("validate nope", "'nope' of kind 'validations'", "policies"),
    "reproduce what": case("reproduce nope", "there is no study 'nope'", "Choose from"),
    "reproduce from a file": case("reproduce justin-micro --data file", "--data", "is a file"),
}

OTHERS = {
    "show a stranger": case("policy show no", "no/policy.json: cannot be read", "dsp-gym train"),
    "show a file": case("policy show file", "file/policy.json: cannot be read: Not a directory"),
    "pull what": case("policy pull nope", "is not an address", "models:/NAME@ALIAS"),
    "pull from nowhere": case(
        "policy pull models:/a/1 --uri sqlite:///no.db", "there is no such store", "--uri"
    ),
    "promote what": case("policy promote nope --alias prod", "is not an address"),
    "check nothing": case("config check no.yaml", "no.yaml: there is no such file"),
    "check what": case("config check file --kind jbos", "Did you mean 'jobs'?"),
    "check emptiness": case("config check empty.yaml --kind jobs", "empty.yaml: is empty"),
    "check bytes": case("config check latin.yaml --kind jobs", "latin.yaml", *NOT_UTF8),
    "schema of what": case("config schema jbos", "Did you mean 'jobs'?"),
    "bench of none": case("bench env --runs 0", "--runs", "greater than or equal to 1"),
    "bench of a stranger": case("bench policies --policies ds3", *NO_POLICY),
    "bench of another's option": case(
        "bench start --jobs 3", "'--jobs'", "does not apply to 'bench start'", "It takes --runs"
    ),
    "no cluster": case("flink status --home folder", *NO_CLUSTER),
    "no cluster to submit to": case("flink submit flink-q11 --home folder", *NO_CLUSTER),
    "no cluster to cancel on": case("flink down --job abc --home folder", *NO_CLUSTER),
    "submit nothing": case("flink submit nope --home folder", NO_JOB),
    "submit a negative rate": case("flink submit flink-q11 --load=-5 --home folder", *NO_CLUSTER),
    "submit a rate and a load": case(
        "flink submit flink-q11 --rate 5 --load diurnal --home folder",
        "key '--load': value 'diurnal': does not go with --rate",
        "Leave one of them out",
    ),
    "submit a rate of nothing": case(
        "flink submit flink-q11 --rate=-5 --home folder", "key '--rate': value '-5': is no rate"
    ),
    "submit one without a number": case(
        "flink submit flink-q11 --home folder --configuration x", "'x'", "VERTEX=PARALLELISM"
    ),
    "cluster without slots": case("flink up --home folder --slots 0", "'slots'", "equal to 1"),
    "cluster in a file": case("flink up --home file", "file", "name another folder"),
    "schedule how": case("flink up --home folder --scheduler fast", "'default' or 'adaptive'"),
    "no command": case("simulat nexmark-q1", "Did you mean 'simulate'?"),
    "no option": case("list envs --jsn", "--json"),
}

CASES = {
    f"{group}: {name}": one
    for group, cases in (
        ("decide", DECIDE),
        ("simulate", SIMULATE),
        ("sizes", SIZES),
        ("compare", COMPARE),
        ("backtest", BACKTEST),
        ("beside", BESIDE),
        ("data", DATA),
        ("others", OTHERS),
    )
    for name, one in cases.items()
}


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("common")
    write_common(folder)
    return folder


@pytest.mark.parametrize("wrong", CASES.values(), ids=CASES.keys())
def test_bad_input_is_refused_in_words_and_nothing_is_lost(
    wrong: Case, common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(common, tmp_path / "here", wrong)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert_refused(wrong, tmp_path / "here")


def test_every_command_that_reads_something_is_tried() -> None:
    tried = {*(one.line.split()[0] for one in CASES.values())}
    commands = {info.name or info.callback.__name__ for info in app.registered_commands}  # type: ignore[union-attr]
    commands |= {str(group.name) for group in app.registered_groups}
    assert not commands - tried


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("simulate", "nothing was written"),
        ("calibrate", "nothing was written"),
        ("rollout", "finished episodes are kept, and the same command continues"),
        ("record", "finished runs are in the recording's folder"),
        ("shadow", "the journal holds every decision that was made"),
        ("train", "the last checkpoint is kept, and --resume continues from it"),
        ("flink", "dsp-gym flink status lists the running jobs"),
        ("decide", "answers that were printed stand, no file was written"),
    ],
)
def test_an_interrupted_command_says_what_it_leaves(command: str, kept: str) -> None:
    group = typer.Typer(cls=Commands, pretty_exceptions_enable=False)

    @group.callback()
    def _options(debug: bool = typer.Option(False, "--debug")) -> None: ...

    @group.command(command)
    def interrupted() -> None:
        raise KeyboardInterrupt

    result = CliRunner().invoke(group, [command])
    assert result.exit_code == 130
    assert result.stderr == f"Interrupted; {kept}.\n"


def test_an_evaluation_that_finished_nothing_claims_nothing(
    common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dsp_gym.evaluation import comparison

    monkeypatch.chdir(common)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "evaluate", interrupted)
    result = CliRunner().invoke(app, ["evaluate", "bench.yaml", "--track", "none"])
    assert result.exit_code == 130
    assert "kept" not in result.output
    assert result.stderr.endswith("Interrupted.\n")
