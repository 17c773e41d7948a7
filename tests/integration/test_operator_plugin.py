"""The plugin of Flink's operator in a loop that calls it as the operator does.

`docs/guides/operator-plugin.md` says what it promises: one question a cycle, and the built-in
decision wherever the answer is late, wrong or missing.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsp_gym.backends.flink.local.distribution import find_libraries
from dsp_gym.loop.wire import snapshot_from_json
from tests.operator_loop import (
    AUTOSCALER,
    CHAIN,
    EVALUATOR,
    EXECUTOR,
    FOLDER,
    MAP,
    NEEDED,
    SERVICES,
    SINK,
    SOURCE,
    TOKEN,
    Autoscaler,
    Classes,
    FakeGym,
    autoscaler,
    compiled,
    cycle,
    deciding,
    fake_gym,
    forecast,
    jar,
    options,
    tool,
    vertex,
    warmed,
    written_token,
)
from tests.real_flink import REAL_FLINK

pytestmark = REAL_FLINK

BUILT_IN = {SOURCE: 4, MAP: 4, SINK: 4}
"""At 50 % busy the built-in decision on `CHAIN` is to stay: 0.5 / 0.627 of 4 tasks, rounded up."""

SLACK_MS = 5000.0
"""For a machine that does other things; `python -m tests.operator_deadline` is strict."""

SOON = "150 ms"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Classes:
    return compiled(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def loop(classes: Classes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Autoscaler]:
    folder = tmp_path_factory.mktemp("operator")
    with autoscaler(classes, folder) as running:
        yield warmed(running, folder)


@pytest.fixture
def gym() -> Iterator[FakeGym]:
    with fake_gym() as made:
        yield made


@pytest.fixture
def token(tmp_path) -> Path:
    return written_token(tmp_path)


@pytest.fixture
def name(request) -> str:
    """A job of each test's own: the plugin remembers jobs."""
    return f"flink/{request.node.name}"


def parallelism(done: dict[str, Any]) -> dict[str, int]:
    return done["recommended"]


def gauge(done: dict[str, Any], job: str, path: str) -> Any:
    return done["gauges"][f"{job}.AutoScaler.{path}"]


def test_the_jar_holds_the_plugin_alone_and_names_it(classes, tmp_path):
    listed = subprocess.run(
        [tool("jar"), "--list", "--file", str(jar(classes, tmp_path / "plugin.jar"))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    files = [one for one in listed if not one.endswith("/") and "MANIFEST" not in one]
    assert all(one.startswith(("dspgym/operator/", "META-INF/services/")) for one in files)
    named = {
        file.name: file.read_text().strip()
        for file in (classes.plugin / "META-INF" / "services").iterdir()
    }
    assert named == SERVICES


def test_its_classes_need_nothing_but_what_the_operator_has(classes):
    path = f"{classes.provided}:{find_libraries().class_path}"
    line = [tool("jdeps"), "--multi-release", "base", "-verbose:package", "-cp", path]
    said = subprocess.run(
        [*line, str(classes.plugin)], capture_output=True, text=True, check=True
    ).stdout
    packages = set(re.findall(r"-> (\S+)", said)) - {"not"}
    provided = r"java\.|dspgym\.operator$|org\.slf4j$|org\.apache\.flink\.(autoscaler|metrics)"
    more = r"|org\.apache\.flink\.(configuration|runtime\.jobgraph|util)$"
    strange = {
        one
        for one in packages
        if not re.match(provided + more, one) and "/" not in one and not one.endswith(".jar")
    } - {"provided"}
    assert {"java.net.http", "org.slf4j", "org.apache.flink.autoscaler"} <= packages
    assert strange == set()
    assert "not found" not in said


def test_every_class_loads_with_nothing_but_the_interfaces_beside_it(classes, tmp_path):
    dist = next(find_libraries().lib.glob("flink-dist-*.jar"))
    names = [
        str(file.relative_to(classes.plugin).with_suffix("")).replace("/", ".")
        for file in classes.plugin.rglob("*.class")
    ]
    source = tmp_path / "Loads.java"
    source.write_text(
        "public class Loads { public static void main(String[] names) throws Exception {"
        " for (String name : names) Class.forName(name); System.out.print(names.length); } }"
    )
    path = f"{classes.plugin}:{classes.provided}:{dist}"
    line = [tool("java"), "-cp", path, str(source), *names]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, str(len(names))), done.stderr


def test_the_plugin_manager_of_flink_finds_it_in_a_class_loader_of_its_own(loop):
    assert loop.discovered == [[f"{EVALUATOR} true"], [f"{EXECUTOR} true"]]


def test_observe_changes_nothing_and_shows_what_dsp_gym_would_do(loop, gym, token, name):
    (plain,) = loop.run(cycle({}, job="flink/plain"))
    gym.answer = deciding({MAP: 9})
    (seen,) = loop.run(cycle(options(gym.url, token, "observe"), job=name))
    assert (seen["evaluated"], seen["applied"]) == (plain["evaluated"], plain["applied"])
    assert gauge(seen, name, f"jobVertexID.{MAP}.DSP_GYM_PARALLELISM.Current") == 9
    assert gauge(seen, name, f"jobVertexID.{SINK}.DSP_GYM_PARALLELISM.Current") == 4
    assert gym.paths == ["/v1/decide?enacts=false"]
    assert gym.tokens == {f"Bearer {TOKEN}"}


def test_what_it_sends_is_a_snapshot_with_the_rates_of_the_window(loop, gym, token, name):
    source = vertex(SOURCE, rate=8000, busy=0.2, partitions=12)
    source["gauges"]["LAG"] = 600.0
    graph = [source, vertex(MAP, [SOURCE], tasks=2, rate=8000, out=500, busy=0.75)]
    gym.answer = deciding({})
    given = options(gym.url, token, "observe", job="orders", policy="ds2", **{f"vertex.{MAP}": "m"})
    loop.run(cycle(given, [*graph, vertex(SINK, [MAP], rate=500, ship="HASH")], job=name))
    (document,) = gym.asked
    seen = snapshot_from_json([document]).job(0)
    assert gym.paths == ["/v1/decide?enacts=false&policy=ds2"]
    assert (document["job"], document["t_s"]) == ("orders", 1_700_000_000.0)
    assert seen.vertices == (SOURCE, "m", SINK)
    assert seen.get("window_fill") == 1.0
    assert seen.get("running_since_s") == 1_700_000_000.0 - 1500
    assert seen.vertex("m", "records_in_per_s") == pytest.approx(8000)
    assert seen.vertex("m", "records_out_per_s") == pytest.approx(500)
    assert seen.vertex("m", "busy_ms_per_s") == pytest.approx(750)
    assert seen.vertex("m", "busy_accumulated_ms_per_s") == pytest.approx(1500)
    assert seen.vertex(SOURCE, "pending_records") == 600
    by_name = {one["name"]: one for one in document["vertices"]}
    assert by_name[SINK]["inputs"] == [{"from": "m", "ship": "HASH"}]
    assert (by_name[SOURCE]["kind"], by_name[SOURCE]["partitions"]) == ("source", 12)


def test_it_asks_once_a_cycle_before_the_first_vertex(loop, gym, token, name):
    gym.answer = deciding({MAP: 6})
    given = options(gym.url, token, "policy")
    for k in range(3):
        loop.run(cycle(given, job=name, t_s=1_700_000_000.0 + 60 * k))
    assert [one["t_s"] - 1_700_000_000.0 for one in gym.asked] == [0, 60, 120]


@pytest.mark.parametrize(
    "wanted",
    [{MAP: 9}, {MAP: 1, SINK: 1}, {MAP: 5, SINK: 3}, {MAP: 128, SINK: 127}, {MAP: 3}, {}],
    ids=str,
)
@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"catch-up.duration": "0 s", "utilization.target": "0.9"},
        {"catch-up.duration": "60 s", "utilization.target": "0.35"},
    ],
    ids=str,
)
def test_policy_leads_every_vertex_to_what_dsp_gym_wants(loop, gym, token, name, wanted, conf):
    gym.answer = deciding(wanted)
    (done,) = loop.run(cycle({**options(gym.url, token, "policy"), **conf}, job=name))
    assert parallelism(done) == {**BUILT_IN, **wanted}
    assert done["applied"] == wanted
    assert gym.paths == ["/v1/decide?enacts=true"]
    assert gauge(done, name, "DspGym.Leads") == 1


@pytest.mark.parametrize(
    "odd",
    [
        {"rate": 0.0, "busy": 0.0},  # never busy: it could process anything
        {"rate": 3.0, "busy": 0.9},  # so slow that rounding to whole records tells
        {"rate": 5e7, "busy": 0.001, "tasks": 100},
    ],
    ids=str,
)
def test_policy_leads_vertices_whose_rate_says_nothing(loop, gym, token, name, odd):
    gym.answer = deciding({MAP: 7, SINK: 2})
    graph = [CHAIN[0], vertex(MAP, [SOURCE], **odd), vertex(SINK, [MAP], **odd)]
    (done,) = loop.run(cycle(options(gym.url, token, "policy"), graph, job=name))
    assert done["applied"] == {MAP: 7, SINK: 2}


def test_policy_holds_where_the_built_in_decision_would_not(loop, gym, token, name):
    gym.answer = deciding({})
    busy = [vertex(SOURCE, busy=0.95), vertex(MAP, [SOURCE], busy=0.99), vertex(SINK, [MAP])]
    for one in busy:
        one["gauges"]["LAG"] = 1e7
    (plain,) = loop.run(cycle({}, busy, job="flink/plain"))
    assert plain["applied"][MAP] > 4
    (done,) = loop.run(cycle(options(gym.url, token, "policy"), busy, job=name))
    assert (parallelism(done), done["applied"]) == (BUILT_IN, {})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scaling.parallelism-alignment.mode", "BALANCED"),
        ("scale-down.interval", "1 h"),
        ("scale-down.max-factor", "0.6"),
        ("observed-scalability.enabled", "true"),
        ("scaling.effectiveness.detection.enabled", "true"),
        ("scaling.custom-executors", ""),
        ("utilization.target", "0.0"),
    ],
)
def test_policy_does_not_start_without_the_options_it_needs(loop, gym, token, name, key, value):
    given = {**options(gym.url, token, "policy"), key: value}
    (done,) = loop.run(cycle(given, job=name))
    (plain,) = loop.run(cycle({**NEEDED, key: value}, job="flink/plain"))
    assert done["evaluated"] == plain["evaluated"]
    assert gym.asked == []


@pytest.mark.parametrize(
    ("wanted", "conf"),
    [
        ({MAP: 129}, {}),  # more than its key groups
        ({MAP: 2}, {"vertex.min-parallelism": "3"}),
        ({MAP: 9}, {"scale-up.max-factor": "1.0"}),
        ({MAP: 6, SINK: 6}, {"vertex.exclude.ids": SINK}),
    ],
    ids=str,
)
def test_policy_leads_all_vertices_or_none(loop, gym, token, name, wanted, conf):
    gym.answer = deciding(wanted)
    given = {**options(gym.url, token, "policy"), **conf}
    (done,) = loop.run(cycle(given, job=name))
    (plain,) = loop.run(cycle({**NEEDED, **conf}, job="flink/plain"))
    assert done["evaluated"] == plain["evaluated"]
    assert gauge(done, name, "DspGym.Leads") == 0


def test_while_the_window_fills_policy_shows_and_enacts_nothing(loop, gym, token, name):
    gym.answer = deciding({MAP: 9})
    (done,) = loop.run(cycle(options(gym.url, token, "policy"), job=name, full=False))
    assert gym.paths == ["/v1/decide?enacts=false"]
    assert done["evaluated"][MAP]["SCALE_UP_RATE_THRESHOLD"] == [8000.0, "NaN"]
    assert gauge(done, name, f"jobVertexID.{MAP}.DSP_GYM_PARALLELISM.Current") == 9


def test_the_executor_vetoes_what_the_guardrails_have_not_allowed(loop, gym, token, name):
    gym.answer = deciding({MAP: 9})
    given = {
        **options(gym.url, token, "policy"),
        "scaling.custom-executors": "gym;other",
        "scaling.custom-executor.other.class": "dspgym.operator.Others$Adds",
    }
    (done,) = loop.run(cycle(given, job=name))
    assert (done["applied"], done["events"]) == ({}, ["ScalingVetoed"])
    assert gauge(done, name, "DspGym.Vetoes") == 1


def test_the_executor_has_no_say_where_dsp_gym_did_not_answer(loop, gym, token, name):
    gym.answer = lambda snapshot: (500, b"{}")
    busy = [vertex(SOURCE), vertex(MAP, [SOURCE], busy=0.99), vertex(SINK, [MAP])]
    busy[0]["gauges"]["LAG"] = 1e6
    (done,) = loop.run(cycle(options(gym.url, token, "policy"), busy, job=name))
    (plain,) = loop.run(cycle(NEEDED, busy, job="flink/plain"))
    assert plain["applied"]
    assert (done["applied"], done["events"]) == (plain["applied"], [])


def test_an_executor_that_throws_ends_the_cycle_but_ours_does_not(loop, gym, token, name):
    gym.answer = deciding({MAP: 9})
    given = {
        **options(gym.url, token, "policy"),
        "scaling.custom-executors": "gym;other",
        "scaling.custom-executor.other.class": "dspgym.operator.Others$Throws",
    }
    (done,) = loop.run(cycle(given, job=name))
    assert done["applied"] == {}
    assert done["events"][0].startswith("AutoscalerError")


def test_forecast_raises_sources_and_their_thresholds_so_that_the_incumbent_acts(
    loop, gym, token, name
):
    gym.answer = deciding({MAP: 99}, **forecast(24_000))
    (done,) = loop.run(cycle(options(gym.url, token, "forecast"), job=name))
    of_source, of_map = done["evaluated"][SOURCE], done["evaluated"][MAP]
    assert of_source["TARGET_DATA_RATE"] == ["NaN", 24_000.0]
    assert of_source["SCALE_UP_RATE_THRESHOLD"] == [24_000.0, "NaN"]
    assert of_source["SCALE_DOWN_RATE_THRESHOLD"] == [64_000.0, "NaN"]  # 24,000 (1/0.4 + 300/1800)
    assert of_map["TARGET_DATA_RATE"] == ["NaN", 24_000.0]
    # 24,000 (1/0.7 + 1/6) of 16,000 records/s that 4 tasks process: 9.57 tasks. The fullest of 11
    # has fewer of the 128 key groups than that of 10.
    assert done["applied"] == {SOURCE: 10, MAP: 10, SINK: 11}
    assert gauge(done, name, f"jobVertexID.{SOURCE}.DSP_GYM_FORECAST_DATA_RATE.Current") == 24_000


def test_forecast_is_split_between_sources_as_they_are_read(loop, gym, token, name):
    other = f"{0xD4:032x}"
    graph = [
        vertex(SOURCE, rate=6000),
        vertex(other, rate=2000),
        vertex(SINK, [SOURCE, other], rate=8000),
    ]
    gym.answer = deciding({}, **forecast(12_000))
    (done,) = loop.run(cycle(options(gym.url, token, "forecast"), graph, job=name))
    assert done["evaluated"][SOURCE]["TARGET_DATA_RATE"] == ["NaN", 9000.0]
    assert done["evaluated"][other]["TARGET_DATA_RATE"] == ["NaN", 3000.0]


@pytest.mark.parametrize(
    "more",
    [{}, forecast(7999), forecast(24_000, None), forecast(24_000, 0.7), forecast(0.0)],
    ids=["none", "lower", "unchecked", "wrong lately", "zero"],
)
def test_forecast_never_lowers_and_a_poor_one_is_ignored(loop, gym, token, name, more):
    gym.answer = deciding({MAP: 1}, **more)
    (done,) = loop.run(cycle(options(gym.url, token, "forecast"), job=name))
    (plain,) = loop.run(cycle({}, job="flink/plain"))
    assert done["evaluated"] == plain["evaluated"]


def without(key: str) -> bytes:
    found = json.loads(deciding({MAP: 9})({"job": "x", "t_s": 0.0, "vertices": []})[1])
    return json.dumps({k: v for k, v in found.items() if k != key}).encode()


def edited(**changes: Any) -> Any:
    def answer(snapshot: dict[str, Any]) -> tuple[int, bytes]:
        found = json.loads(deciding({MAP: 9})(snapshot)[1])
        return 200, json.dumps({**found, **changes}).encode()

    return answer


def of_vertices(change: Any) -> Any:
    def answer(snapshot: dict[str, Any]) -> tuple[int, bytes]:
        found = json.loads(deciding({MAP: 9})(snapshot)[1])
        change(found["vertices"])
        return 200, json.dumps(found).encode()

    return answer


WRONG = {
    "500": lambda snapshot: (500, b'{"error": "a fault"}'),
    "503": lambda snapshot: (503, b""),
    "redirect": lambda snapshot: (302, b""),
    "nothing": lambda snapshot: (200, b""),
    "garbage": lambda snapshot: (200, b"\x00\xff<html>"),
    "half": lambda snapshot: (200, deciding({MAP: 9})(snapshot)[1][:-20]),
    "list": lambda snapshot: (200, b"[]"),
    "deep": lambda snapshot: (200, b"[" * 100_000),
    "twice": lambda snapshot: (200, deciding({MAP: 9})(snapshot)[1] * 2),
    "large": lambda snapshot: (200, b" " * (5 << 20)),
    "no vertices": lambda snapshot: (200, without("vertices")),
    "another schema": edited(schema="dsp-gym/decision/2"),
    "another job": edited(job="payments"),
    "stale": edited(t_s=1_600_000_000.0),
    "no number": edited(vertices="all"),
    "a vertex left out": of_vertices(lambda vertices: vertices.pop()),
    "a vertex more": of_vertices(lambda vertices: vertices.append({**vertices[0], "name": "x"})),
    "a vertex twice": of_vertices(lambda vertices: vertices.append(vertices[0])),
    "zero tasks": of_vertices(lambda vertices: vertices[1].update(parallelism=0)),
    "half a task": of_vertices(lambda vertices: vertices[1].update(parallelism=2.5)),
    "a million tasks": of_vertices(lambda vertices: vertices[1].update(parallelism=1e6)),
    "a word": of_vertices(lambda vertices: vertices[1].update(parallelism="9")),
    "a wrong forecast": edited(forecast={"records_in_per_s": -1}),
}


@pytest.mark.parametrize("mode", ["observe", "forecast", "policy"])
def test_a_wrong_answer_leaves_the_built_in_decision(loop, gym, token, name, mode):
    given = options(gym.url, token, mode)
    (plain,) = loop.run(cycle(NEEDED if mode == "policy" else {}, job="flink/plain"))
    for k, (what, answer) in enumerate(WRONG.items(), start=1):
        gym.answer = answer
        (done,) = loop.run(cycle(given, job=name, t_s=1_700_000_000.0 + 60 * k))
        assert done["evaluated"] == plain["evaluated"], what
        assert (done["applied"], done["events"], done["caught"]) == ({}, [], []), what
        assert gauge(done, name, "DspGym.Failures") == k, what
        assert gauge(done, name, f"jobVertexID.{MAP}.DSP_GYM_PARALLELISM.Current") is None, what
    gym.answer = deciding({MAP: 9}, **forecast(24_000))
    (done,) = loop.run(cycle(given, job=name, t_s=1_700_009_000.0))
    assert gauge(done, name, "DspGym.Answers") == 1


def test_a_slow_answer_is_not_waited_for_and_does_not_count_later(loop, gym, token, name):
    release = threading.Event()

    def slow(snapshot: dict[str, Any]) -> tuple[int, bytes]:
        release.wait(30)
        return deciding({MAP: 9})(snapshot)

    gym.answer = slow
    given = {**options(gym.url, token, "policy", timeout=SOON)}
    (first,) = loop.run(cycle(given, job=name))
    release.set()
    time.sleep(0.2)
    (again,) = loop.run(cycle(given, job=name))  # the same cycle: not asked anew, answer dropped
    for done in (first, again):
        assert (done["applied"], parallelism(done)) == ({}, BUILT_IN)
    assert max(first["took_ms"]) < 150 + SLACK_MS
    assert sorted(first["took_ms"])[1] < max(first["took_ms"])  # one vertex waited, not all
    assert len(gym.asked) == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://does-not-exist.invalid:80"])
def test_a_dsp_gym_that_is_not_there_leaves_the_built_in_decision(loop, token, name, url):
    (done,) = loop.run(cycle(options(url, token, "policy"), job=name))
    assert (parallelism(done), done["caught"]) == (BUILT_IN, [])
    assert gauge(done, name, "DspGym.Failures") == 1


@pytest.mark.parametrize(
    "own",
    [
        {"mode": "lead"},
        {"url": "ftp://x"},
        {"url": "http://"},
        {"url": "::"},
        {"token-file": "/does/not/exist"},
        {"timeout": "0 ms"},
        {"timeout": "2 s"},
        {"timeout": "soon"},
    ],
    ids=str,
)
def test_a_wrong_option_leaves_the_built_in_decision_and_asks_nothing(loop, gym, token, name, own):
    given = options(gym.url, token, "policy")
    given |= {f"metrics.custom-evaluator.gym.{key}": value for key, value in own.items()}
    (done,) = loop.run(cycle(given, job=name))
    assert (parallelism(done), done["caught"]) == (BUILT_IN, [])
    assert gym.asked == []


def test_an_interrupted_cycle_asks_nothing_ends_as_built_in_and_stays_interrupted(
    loop, gym, token, name
):
    gym.answer = deciding({MAP: 9})
    (done,) = loop.run(cycle(options(gym.url, token, "policy"), job=name, interrupted_after_ms=0))
    assert parallelism(done) == BUILT_IN
    assert done["interrupted"]
    assert gym.asked == []


def test_a_cycle_interrupted_while_it_waits_ends_as_built_in_and_stays_interrupted(
    loop, gym, token, name
):
    ended = threading.Event()

    def late(snapshot: dict[str, Any]) -> tuple[int, bytes]:
        ended.wait(30)
        return deciding({MAP: 9})(snapshot)

    gym.answer = late
    given = options(gym.url, token, "policy")
    (done,) = loop.run(cycle(given, job=name, interrupted_after_ms=200))
    ended.set()
    assert parallelism(done) == BUILT_IN
    assert done["interrupted"]


def test_one_instance_serves_many_jobs_at_once(loop, gym, token, name):
    barrier = threading.Barrier(8)

    def together(snapshot: dict[str, Any]) -> tuple[int, bytes]:
        barrier.wait(30)  # all are under way at once, so none waits for another
        tasks = 5 + int(snapshot["job"].rpartition("-")[2])
        return deciding({MAP: tasks, SINK: tasks + 1})(snapshot)

    gym.answer = together
    whole = 0
    # Eight requests may take a busy machine more than the longest timeout: then the built-in
    # decision stands, and another round is asked.
    for k in range(12):
        cycles = [
            cycle(
                options(gym.url, token, "policy", job=f"{name}-{n}"),
                job=f"{name}-{n}",
                t_s=1_700_000_000.0 + 60 * k,
            )
            for n in range(8)
        ]
        rounds = loop.run(*cycles)
        for n, done in enumerate(rounds):
            assert done["applied"] in ({}, {MAP: 5 + n, SINK: 6 + n})
            assert not [path for path in done["gauges"] if "TWICE" in path]
        whole += all(done["applied"] for done in rounds)
        if whole == 3:
            break
    assert whole == 3


def test_a_job_of_one_vertex_is_left_to_the_autoscaler(loop, gym, token, name):
    (done,) = loop.run(cycle(options(gym.url, token, "policy"), [vertex(SOURCE)], job=name))
    assert (done["applied"], gym.asked) == ({}, [])


def test_a_changed_graph_is_another_job_to_dsp_gym(loop, gym, token, name):
    gym.answer = deciding({})
    given = options(gym.url, token, "observe")
    other = vertex(f"{0xD4:032x}", [SOURCE])
    loop.run(cycle(given, job=name))
    loop.run(cycle(given, [CHAIN[0], other], job=name, t_s=1_700_000_060.0))
    loop.run(cycle(given, job=name, t_s=1_700_000_120.0))
    first, second, third = (one["job"] for one in gym.asked)
    assert first == third != second
    assert first.startswith(name)


def guide() -> list[dict[str, str]]:
    """The operator's settings that the guide shows, in its order."""
    text = (FOLDER.parent / "docs" / "guides" / "operator-plugin.md").read_text("utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    found = [yaml.safe_load(block) for block in blocks if f"\n{AUTOSCALER}" in block]
    return [{key.removeprefix(AUTOSCALER): value for key, value in one.items()} for one in found]


def test_the_guide_names_the_keys_that_are_needed(loop, gym, token, name):
    select, lead = guide()
    own = "metrics.custom-evaluator.dsp-gym."
    here = {f"{own}url": gym.url, f"{own}token-file": str(token), f"{own}timeout": "1 s"}
    gym.answer = deciding({MAP: 9})
    (observed,) = loop.run(cycle({**select, **here}, job=name))
    (led,) = loop.run(cycle({**select, **lead, **here}, job=name, t_s=1_700_000_060.0))
    assert (observed["applied"], led["applied"]) == ({}, {MAP: 9})
    assert gym.paths == ["/v1/decide?enacts=false", "/v1/decide?enacts=true"]
