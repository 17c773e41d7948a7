"""Wrong snapshots for `decide` and wrong jobs for `simulate`: each refusal says what, and where."""

from __future__ import annotations

import json

from tests.bad_input import (
    JOB,
    NO_POLICY,
    NOT_UTF8,
    Case,
    Content,
    case,
    edited,
    lines,
    metric,
    snapshot,
)


def decide(content: Content, *says: str) -> Case:
    return case("decide in.jsonl --policy ds2", *says, in__jsonl=content)


DECIDE = {
    "empty": decide("", "in.jsonl: is empty, expected snapshots", "one JSON document per line"),
    "blank": decide("\n \n", "in.jsonl: is empty"),
    "empty stdin": case("decide - --policy ds2", "standard input: is empty", stdin=""),
    "NaN": decide(
        lambda: metric("busy_ms_per_s", float("nan")),
        "in.jsonl, line 1",
        "vertices[1].metrics.busy_ms_per_s",
        "Write null for unknown",
    ),
    "infinite": decide(
        lambda: metric("records_in_per_s", float("inf")), "records_in_per_s", "Write null"
    ),
    "NaN of a time": decide(lambda: edited("t_s", float("nan")), "key 't_s'", "finite number"),
    "negative rate": decide(
        lambda: metric("records_in_per_s", -5.0),
        "line 1",
        "records_in_per_s of 'session' is -5, expected 0 or more",
        "Write null",
    ),
    "negative backlog": decide(
        lambda: metric("pending_records", -1e6, 0), "pending_records of 'bids' is -1e+06"
    ),
    "busy for longer than time": decide(
        lambda: metric("busy_ms_per_s", 1500.0),
        "busy_ms_per_s of 'session' is 1,500, expected 0 to 1,000",
        "means over subtasks, not sums",
    ),
    "negative busy time": decide(
        lambda: metric("busy_ms_per_s", -500.0), "busy_ms_per_s of 'session' is -500"
    ),
    "words for a number": decide(
        lambda: metric("busy_ms_per_s", "fast"), "value 'fast'", "expected a valid number"
    ),
    "misspelt metric": decide(
        lambda: metric("bussy_ms_per_s", 1.0), "bussy_ms_per_s", "Did you mean 'busy_ms_per_s'?"
    ),
    "unknown status": decide(lambda: edited("status", "RUNING"), "'RUNING'", "'RUNNING'"),
    "other version": decide(
        lambda: edited("schema", "dsp-gym/snapshot/2"),
        "this version is not read here",
        "reads 'dsp-gym/snapshot/1'",
    ),
    "no version": decide(lambda: lines({"a": 1}), "the key 'schema' is missing"),
    "decision": decide(
        lambda: lines({"schema": "dsp-gym/decision/1"}),
        "is a document of another kind",
        "give the snapshot that it answers",
    ),
    "journal": case(
        "decide journal/journal-000000000000.jsonl --policy ds2",
        "journal-000000000000.jsonl, line 1",
        "is a document of another kind",
        "dsp-gym backtest",
        "jq -c 'select(.kind == \"snapshot\").body'",
    ),
    "list": decide("[]\n", "line 1: holds a list, expected a JSON object"),
    "number": decide("5\n", "line 1: holds a number, expected a JSON object"),
    "cut": decide(lambda: lines(snapshot())[:80], "line 1: is not valid JSON", "one whole"),
    "over several lines": decide(lambda: json.dumps(snapshot(), indent=1), "Write one whole"),
    "no vertices": decide(
        lambda: edited("vertices", []), "key 'vertices'", "expected 2 or more entries, found 0"
    ),
    "no metrics": decide(
        lambda: edited("metrics", None), "value 'null': expected a mapping of keys"
    ),
    "no subtasks": decide(lambda: edited("vertices", 1, "parallelism", 0), "[1].parallelism"),
    "too many subtasks": decide(
        lambda: edited("vertices", 1, "parallelism", 9999), "'session' runs 9999", "Raise max_"
    ),
    "level that is not there": decide(
        lambda: edited("vertices", 1, "memory_level", 9), "runs level 9", "memory.levels"
    ),
    "negative price": decide(lambda: edited("prices", "core_hour", -1), "prices.core_hour", "-1"),
    "source with inputs": decide(
        lambda: edited("vertices", 0, "inputs", [{"from": "sink"}]), "'bids' is a source"
    ),
    "wrong order": decide(
        lambda: lines(snapshot(60.0), snapshot(0.0)), "line 2: t_s 0", "does not follow 60", "Sort"
    ),
    "same line twice": decide(
        lambda: lines(snapshot(), snapshot()), "line 2: t_s 60", "without repeats"
    ),
    "not UTF-8": decide(b'{"a": 1}\n{"b": "caf\xe9"}\n', "line 1: the key 'schema' is missing"),
    "not UTF-8 at once": decide(
        b'\n{"b": "caf\xe9"}\n', "in.jsonl: is not UTF-8 text: byte 0xe9 at line 2, column 11"
    ),
    "UTF-16": decide("{}".encode("utf-16"), "byte 0xff at line 1, column 1", "Save it as UTF-8"),
    "folder": case("decide folder --policy ds2", "folder: cannot be read", "directory"),
    "missing": case("decide no.jsonl --policy ds2", "no.jsonl: cannot be read"),
    "output is a folder": case(
        "decide snapshots.jsonl --policy ds2 --out folder",
        "folder: cannot be written: it is a folder",
        "Name a file",
    ),
    "output below a file": case(
        "decide snapshots.jsonl --policy ds2 --out file/out.jsonl",
        "file/out.jsonl: cannot be written: 'file' is a file, not a folder",
        "another folder",
    ),
    "policy": case("decide snapshots.jsonl --policy ds3", *NO_POLICY),
    "policy of another kind": case(
        "decide snapshots.jsonl --policy file", "file: holds text, expected a mapping"
    ),
    "guardrails": case("decide snapshots.jsonl --policy ds2 --guardrails defualt", "'default'"),
    "trace": case(
        "decide snapshots.jsonl --policy ds2 --trace", "cannot read traces", "Leave --trace"
    ),
    "its own format": case(
        "decide in.jsonl --policy flink-autoscaler",
        "line 1: has no 'vertices'",
        "now_ms",
        in__jsonl='{"a": 1}\n',
    ),
}

SIMULATE = {
    "empty": case("simulate empty.yaml", "empty.yaml: is empty, expected a mapping of keys"),
    "list": case("simulate list.yaml", "list.yaml: holds a list, expected a mapping of keys"),
    "tab": case("simulate in.yaml", "line 2, column 1: is not valid YAML", in__yaml="job:\n\t- a"),
    "not UTF-8": case("simulate latin.yaml", "latin.yaml", *NOT_UTF8),
    "UTF-16": case("simulate in.yaml", "byte 0xff at line 1", in__yaml=JOB.encode("utf-16")),
    "folder": case("simulate folder", "folder: is a folder, expected a YAML file"),
    "this folder": case("simulate .", "is a folder, expected a YAML file"),
    "JSON that is not there": case("simulate no.json", "no.json: there is no such file"),
    "misspelt": case("simulate nexmark-q111", "Did you mean 'nexmark-q11'?"),
    "load": case("simulate job.yaml --load nope", "'nope' of kind 'loads'", "Choose from"),
    "load file": case("simulate job.yaml --load job.yaml", "the key 'load' is missing"),
    "policy": case("simulate job.yaml --policies ds3", *NO_POLICY),
    "guardrails": case("simulate job.yaml --guardrails job.yaml", "job.yaml: 3 things are wrong"),
    "duration": case("simulate job.yaml --duration soon", "'--duration'", "'soon'", "such as 90s"),
    "interval": case("simulate job.yaml --interval -5s", "key '--interval'", "is not a duration"),
    "no interval": case("simulate job.yaml --interval 0s", "'interval_s'", "equal to 5"),
    "interval beyond the end": case(
        "simulate job.yaml --duration 10m --interval 1h",
        "key '--duration'",
        "'10m'",
        "is not a multiple of --interval 1h",
        "Take --duration 3600s",
    ),
    "start": case("simulate job.yaml --start big", "'big'", "expected 'job' or 'sized'"),
    "seed": case("simulate job.yaml --seed x", "--seed", "valid integer"),
    "plot without folder": case(
        "simulate job.yaml --plot new/deep/run.html",
        "key '--plot'",
        "there is no such folder",
        "Make it: mkdir -p new/deep",
    ),
    "plot below a file": case(
        "simulate job.yaml --plot file/run.html", "'--plot'", "'file' is a file: choose another"
    ),
    "plot on a folder": case("simulate job.yaml --plot folder", "'--plot'", "is a folder"),
}
