from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.errors import LoadError
from dsp_gym.loads import TraceLibrary, rates, read_trace
from dsp_gym.loads.spec import TraceColumns, TraceLoad

GOOD = "t_seconds,rate\n0,1.0\n10,2.0\n20,4.0\n"


@pytest.fixture
def data(tmp_path, monkeypatch):
    """An empty data folder, and a current directory that has none beside it."""
    here = tmp_path / "somewhere" / "here"
    here.mkdir(parents=True)
    folder = tmp_path / "data"
    (folder / "traces").mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("DSP_GYM_DATA", str(folder))
    return folder


def replay(folder: Path, duration_s: float, *, seed: int = 0, text: str = GOOD, **keys) -> list:
    (folder / "day.csv").write_text(text)
    spec = TraceLoad(form="trace", path="day", **keys)
    return rates(spec, seed=seed, duration_s=duration_s).tolist()


def test_a_trace_is_interpolated_and_its_last_row_stands_as_long_as_the_one_before(data):
    made = replay(data, 30)
    assert made[:20] == pytest.approx(
        [1 + t / 10 for t in range(10)] + [2 + t / 5 for t in range(10)]
    )
    assert made[20:] == [4.0] * 10


def test_a_held_trace_keeps_each_row_until_the_next(data):
    assert replay(data, 30, interpolation="hold") == [1.0] * 10 + [2.0] * 10 + [4.0] * 10


def test_compression_and_scale_put_more_trace_into_a_second(data):
    assert replay(data, 3, compress=10, scale=2) == [2.0, 4.0, 8.0]


def test_a_window_begins_and_ends_inside_the_trace(data):
    assert replay(data, 10, from_s=10, to_s=20, interpolation="hold") == [2.0] * 10
    with pytest.raises(LoadError, match=r"window 10..20 s gives 10 s .* 11 s are needed"):
        replay(data, 11, from_s=10, to_s=20)
    with pytest.raises(LoadError, match="the trace ends at 30 s"):
        replay(data, 11, to_s=31)


def test_a_trace_in_records_per_second_can_be_divided_by_its_peak(data):
    assert replay(data, 3, compress=10, divide_by_peak=True) == [0.25, 0.5, 1.0]


def test_a_random_start_leaves_room_for_the_whole_load(data):
    steady = "t_seconds,rate\n" + "".join(f"{t},{t}\n" for t in range(101))
    starts = {replay(data, 40, seed=s, text=steady, to_s=100, start="random")[0] for s in range(40)}
    assert min(starts) >= 0
    assert max(starts) <= 60
    assert max(starts) - min(starts) > 40


def test_a_trace_is_looked_for_beside_the_caller_then_in_the_data_folder(data, tmp_path):
    (data / "traces" / "a.csv").write_text(GOOD)
    library = TraceLibrary()
    assert library.find("a") == data / "traces" / "a.csv"
    assert library.find("traces/a.csv") == data / "traces" / "a.csv"
    (data / "a.csv").write_text(GOOD)
    assert library.find("a") == data / "a.csv"
    (tmp_path / "a.csv").write_text(GOOD)
    assert TraceLibrary(tmp_path).find("a.csv") == tmp_path / "a.csv"
    assert library.find(str(tmp_path / "a.csv")) == tmp_path / "a.csv"


def test_a_missing_trace_says_where_it_was_looked_for_and_how_to_name_the_folder(data):
    with pytest.raises(LoadError) as error:
        TraceLibrary().get("nowhere")
    text = str(error.value)
    assert "'nowhere'" in text
    assert str(data / "nowhere.csv") in text
    assert str(data / "traces" / "nowhere.csv") in text
    assert "export DSP_GYM_DATA=" in text


def test_without_a_data_folder_the_error_still_says_how_to_name_one(data, monkeypatch):
    monkeypatch.delenv("DSP_GYM_DATA")
    with pytest.raises(LoadError, match=r"looked for nowhere\.csv.*DSP_GYM_DATA"):
        TraceLibrary().get("nowhere")


def test_a_library_reads_a_file_once(data):
    (data / "a.csv").write_text(GOOD)
    library = TraceLibrary()
    first = library.get("a")
    (data / "a.csv").unlink()
    assert library.get("a") is first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("t_seconds,rate\n", "has 0 rows"),
        ("t_seconds,rate\n0,1\n", "has 1 rows"),
        ("time,rate\n0,1\n", "no column 't_seconds'"),
        ("0,1\n10,2\n", "no column 't_seconds' and 'rate'"),
        ("t_seconds,rate\n0,1\n10,nan\n", "key 'rate': value 'nan': line 3: rate is not finite"),
        ("t_seconds,rate\n0,1\n10,inf\n", "line 3: rate is not finite"),
        ("t_seconds,rate\n0,1\n10,-0.5\n", "line 3: rate is negative"),
        ("t_seconds,rate\n-5,1\n10,0.5\n", "line 2: t_seconds is negative"),
        ("t_seconds,rate\n0,1\n10,many\n", "value 'many': line 3: rate is not a number"),
        ("t_seconds,rate\n0,1\n10\n", "value '': line 3: rate is not a number"),
        ("t_seconds,rate\n0,1\n20,1\n10,1\n", "line 4: t_seconds is before that of line 3, 20"),
        ("t_seconds,rate\n0,1\n20,1\n\n20,1\n", "line 5: t_seconds repeats that of line 3, 20"),
    ],
)
def test_a_broken_trace_is_refused_by_file_and_line(tmp_path, text, message):
    file = tmp_path / "broken.csv"
    file.write_text(text)
    with pytest.raises(LoadError, match=message) as error:
        read_trace(file)
    assert str(error.value).startswith(str(file))


def test_a_trace_that_is_no_text_is_refused(tmp_path):
    file = tmp_path / "binary.csv"
    file.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(LoadError, match=r"binary\.csv: is not UTF-8 text: byte 0xff at line 1,"):
        read_trace(file)


def test_other_columns_and_their_order_do_not_matter(tmp_path):
    file = tmp_path / "wide.csv"
    file.write_text("\ufeffrate, host,t_seconds\n1,a,0\n2,b,10\n", encoding="utf-8")
    trace = read_trace(file)
    assert trace.t_s.tolist() == [0, 10]
    assert trace.rate.tolist() == [1, 2]
    assert not np.shares_memory(trace.t_s, trace.rate)


GRAFANA = TraceColumns(time="Time", rate="records/s")


@pytest.mark.parametrize(
    "text",
    [
        'sep=,\n"Time","records/s"\n2025-03-09 14:00:00,1250\n2025-03-09 14:01:00,1410\n',
        '"Time","other","records/s"\r\n1741528800000,1,1250\r\n1741528860000,1,1410\r\n',
        "\ufeffTime;records/s\n2025-03-09T15:00:00.000+01:00;1250\n2025-03-09T14:01:00Z;1410\n",
        "sep=;\nTime;records/s\n2025-03-09T14:00:00Z;1250\n2025-03-09T14:01:00Z;1410\n",
        "Time,records/s\n300,1250\n360,1410\n",
    ],
)
def test_a_csv_of_another_program_is_read_as_it_is(tmp_path, text):
    file = tmp_path / "grafana.csv"
    file.write_text(text, encoding="utf-8", newline="")
    trace = read_trace(file, GRAFANA)
    assert trace.t_s.tolist() == [0, 60]
    assert trace.rate.tolist() == [1250, 1410]


def test_a_time_without_a_sample_is_left_out_and_bridged(data):
    text = "Time,records/s\n2025-03-09T14:00:00,0\n2025-03-09T14:00:10,null\n"
    text += "2025-03-09T14:00:15,\n2025-03-09T14:00:20,20\n"
    made = replay(data, 20, text=text, columns=GRAFANA)
    assert made == pytest.approx(list(range(20)))


def test_a_file_is_read_once_for_each_pair_of_columns(data):
    (data / "wide.csv").write_text("t,a,b\n0,1,5\n10,2,6\n")
    library = TraceLibrary()
    a, b = (TraceColumns(time="t", rate=name) for name in "ab")
    assert library.get("wide", a).rate.tolist() == [1, 2]
    assert library.get("wide", b).rate.tolist() == [5, 6]
    assert library.get("wide", a) is library.get("wide", TraceColumns(time="t", rate="a"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a header line 'Time,records/s'"),
        ("Time,record/s\n", "no column 'records/s'. Did you mean 'record/s'"),
        ("Time,records/s\n14:00 o'clock,1\n", "line 2: Time is no time. Write ISO 8601"),
        ("sep=,\nTime,records/s\n0,1.25 K\n", "line 3: records/s is not a number.*Formatted"),
        ("Time,records/s\n0,-1\n", "line 2: records/s is negative"),
        ("Time,records/s\n2025-03-09,1\n2025-03-08,1\n", "line 3: Time is before that"),
        ("Time,records/s\n2025-03-09,1\n2025-03-10,\n", "has 1 rows"),
    ],
)
def test_a_broken_csv_of_another_program_is_refused_by_file_and_line(tmp_path, text, message):
    file = tmp_path / "broken.csv"
    file.write_text(text)
    with pytest.raises(LoadError, match=message) as error:
        read_trace(file, GRAFANA)
    assert str(error.value).startswith(str(file))


def test_a_file_with_other_columns_says_how_to_name_them(tmp_path):
    (tmp_path / "grafana.csv").write_text("Time,records/s\n0,1\n60,2\n")
    with pytest.raises(LoadError, match=r"columns: \{time: \.\.\., rate: \.\.\.\}"):
        read_trace(tmp_path / "grafana.csv")


def test_columns_that_are_not_named_leave_no_mark_in_a_dump():
    assert "columns" not in TraceLoad(form="trace", path="day").model_dump()
    named = TraceLoad(form="trace", path="day", columns=GRAFANA).model_dump()
    assert TraceLoad.model_validate(named).columns == GRAFANA


def checked(*arguments):
    return CliRunner().invoke(app, ["config", "check", *arguments])


def test_config_check_reads_the_csv_of_a_load_and_of_an_experiment(data, tmp_path):
    load = "{form: trace, path: grafana, columns: {time: Time, rate: records/s}}"
    (Path() / "own.yaml").write_text(f"# kind: loads\nload: {load}\n")
    split = f"{{train: {{loads: [{{load: {load}, name: own}}]}}}}"
    (Path() / "trial.yaml").write_text(
        f"# kind: experiments\nname: trial\njobs: [nexmark-q1]\nloads: {split}\n"
    )
    for file in ("own.yaml", "trial.yaml"):
        missing = checked(file)
        assert missing.exit_code == 2
        assert "there is no trace 'grafana'" in missing.stderr
    (Path() / "grafana.csv").write_text("Time,records/s\n2025-03-09 14:00:00,1\nsoon,2\n")
    for file in ("own.yaml", "trial.yaml"):
        broken = checked(file)
        assert broken.exit_code == 2
        assert "line 3: Time is no time" in broken.stderr
    (Path() / "grafana.csv").write_text("Time,records/s\n2025-03-09 14:00:00,1\n1741528860,2\n")
    for file in ("own.yaml", "trial.yaml"):
        fine = checked(file)
        assert fine.exit_code == 0, fine.output + fine.stderr
    assert checked("worldcup98-train", "--kind", "loads").exit_code == 0  # its trace is elsewhere
