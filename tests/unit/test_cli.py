from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.cli.earlier import NOW
from dsp_gym.cli.errors import Commands
from dsp_gym.cli.output import print_table
from dsp_gym.config.strict_json import plain
from dsp_gym.errors import ConfigError

JOB = """
job: tiny
description: two vertices
source: {rate_per_s: 1e3}
vertices:
- {name: source, kind: source, cpu_us_per_record: 1}
- {name: sink, kind: sink, cpu_us_per_record: 1, inputs: [{from: source}]}
"""


CHANGELOG = (Path(__file__).parents[2] / "CHANGELOG.md").read_text("utf-8")


def known_commands() -> dict[str, object]:
    """Commands and groups by their full names."""
    group = typer.main.get_command(app)
    found = dict(group.commands)
    for name, one in group.commands.items():
        for below, command in getattr(one, "commands", {}).items():
            found[f"{name} {below}"] = command
    return found


@pytest.mark.parametrize("name", NOW)
def test_an_earlier_command_is_refused_with_the_present_one(name: str) -> None:
    done = CliRunner().invoke(app, [*name.split(), "x", "--option"])
    assert done.exit_code == 2
    said = " ".join(done.stderr.replace("│", " ").split())
    assert f"'{name}' is now: dsp-gym {NOW[name]}" in said
    known = known_commands()
    assert name not in known
    words = NOW[name].replace(",", "").split()
    command = known.get(" ".join(words[:2])) or known[words[0]]
    options = {option for one in command.params for option in one.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_the_changelogs_table_of_commands_is_the_one_that_is_refused() -> None:
    table = CHANGELOG.partition("| now | was |")[2].partition("\n\n")[0]
    was = {
        name
        for row in re.findall(r"^\| `dsp-gym .* \| (.*) \|$", table, re.MULTILINE)
        for name in re.findall(r"`([a-z -]+)`", row)
    }
    assert was - known_commands().keys() == NOW.keys() - {"leaderboard", "journal"}


def failing(error: BaseException) -> typer.Typer:
    """A command line of our kind with one command that ends like this."""
    group = typer.Typer(cls=Commands, pretty_exceptions_enable=False)

    @group.callback()
    def _options(debug: bool = typer.Option(False, "--debug")) -> None:
        pass

    @group.command()
    def fail() -> None:
        raise error

    return group


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (ConfigError("is wrong", file="a.yaml"), 2, "ConfigError: a.yaml: is wrong\n"),
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/a"),
            2,
            "StorageError: runs/a: No space left on device. Free some space on that disk.\n",
        ),
        (
            OSError(errno.EROFS, os.strerror(errno.EROFS), "runs/a"),
            2,
            "StorageError: runs/a: Read-only file system. Choose a folder on a disk that can be "
            "written to.\n",
        ),
        (
            FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "a.jsonl"),
            2,
            "StorageError: a.jsonl: No such file or directory. Check the path.\n",
        ),
        (
            ModuleNotFoundError("No module named 'torch'", name="torch"),
            2,
            "MissingExtraError: this command needs the extra 'train'. Install it: pip install "
            "'dsp-gym[train]'\n",
        ),
        (KeyboardInterrupt(), 130, "Interrupted; nothing was written.\n"),
        (
            ZeroDivisionError("division by zero"),
            1,
            "ZeroDivisionError: division by zero\nThis is a bug in dsp-gym. Run the same command "
            "with --debug for the traceback.\n",
        ),
    ],
)
def test_an_error_ends_as_one_message_and_an_exit_code(
    error: BaseException, code: int, expected: str
) -> None:
    result = CliRunner().invoke(failing(error), ["fail"])
    assert result.exit_code == code
    assert result.stderr == expected
    assert result.stdout == ""


@pytest.mark.parametrize("line", [["--debug", "fail"], ["fail", "--debug"]])
def test_debug_lets_the_traceback_through_wherever_it_stands(line: list[str]) -> None:
    error = ConfigError("is wrong")
    assert CliRunner().invoke(failing(error), line).exception is error


def test_a_misspelt_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(app, ["simulat"])
    assert result.exit_code == 2
    assert "Did you mean 'simulate'?" in result.stderr


@pytest.mark.slow
def test_every_command_has_help_with_an_example() -> None:
    commands = [["config", "check"], ["config", "schema"]]
    commands += [[info.name or info.callback.__name__] for info in app.registered_commands]  # type: ignore[union-attr]
    for command in commands:
        result = CliRunner().invoke(app, [*command, "--help"])
        assert result.exit_code == 0, command
        assert f"dsp-gym {' '.join(command)}" in result.output.partition("Example")[2], command


def test_version_is_shown() -> None:
    import dsp_gym

    assert CliRunner().invoke(app, ["--version"]).output == f"dsp-gym {dsp_gym.__version__}\n"


def test_config_check_accepts_and_refuses(tmp_path: Path) -> None:
    good, bad = tmp_path / "jobs" / "good.yaml", tmp_path / "jobs" / "bad.yaml"
    good.parent.mkdir()
    good.write_text(JOB)
    bad.write_text(JOB + "sorce: {}\n")
    result = CliRunner().invoke(app, ["config", "check", str(good)])
    assert (result.exit_code, result.stdout) == (0, f"{good}: fine, kind 'jobs'\n")

    result = CliRunner().invoke(app, ["config", "check", str(good), str(bad)])
    assert result.exit_code == 2
    assert result.stderr == (f"ConfigError: {bad}: unknown key 'sorce'. Did you mean 'source'?\n")

    result = CliRunner().invoke(app, ["config", "check", str(good), str(bad), "--json"])
    assert result.exit_code == 2
    assert [entry["ok"] for entry in json.loads(result.stdout)] == [True, False]


def test_config_check_needs_a_kind_where_the_folder_does_not_tell(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(JOB)
    result = CliRunner().invoke(app, ["config", "check", str(file)])
    assert result.exit_code == 2
    assert "--kind KIND" in result.stderr
    assert CliRunner().invoke(app, ["config", "check", str(file), "--kind", "jobs"]).exit_code == 0


def test_config_check_reads_the_kind_from_a_comment_that_agrees_with_the_folder(
    tmp_path: Path,
) -> None:
    def checked(file: Path, text: str):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return CliRunner().invoke(app, ["config", "check", str(file)])

    said = "# a job of ours\n# kind: jobs\n" + JOB
    found = checked(tmp_path / "mine.yaml", said)
    assert (found.exit_code, found.stdout) == (0, f"{tmp_path / 'mine.yaml'}: fine, kind 'jobs'\n")
    assert checked(tmp_path / "jobs" / "mine.yaml", said).exit_code == 0
    elsewhere = tmp_path / "loads"
    refused = checked(elsewhere / "mine.yaml", said)
    assert "its folder is one of 'loads'" in refused.stderr
    # A folder further up may be called anything.
    assert checked(elsewhere / "deeper" / "mine.yaml", said).exit_code == 0
    wrong = checked(tmp_path / "mine.yaml", said.replace("kind: jobs", "kind: job"))
    assert wrong.exit_code == 2
    assert "Did you mean 'jobs'?" in wrong.stderr


def test_config_schema_is_a_json_schema_that_refuses_unknown_keys() -> None:
    document = json.loads(CliRunner().invoke(app, ["config", "schema", "jobs"]).stdout)
    assert document["type"] == "object"
    assert document["additionalProperties"] is False
    assert "vertices" in document["required"]


@pytest.mark.parametrize("kind", ["jobs", "policies", "envs", "loads"])
def test_lists_agree_as_table_and_as_json(kind: str) -> None:
    rows = json.loads(CliRunner().invoke(app, ["list", kind, "--json"]).stdout)
    table = CliRunner().invoke(app, ["list", kind]).stdout
    assert rows
    for row in rows:
        assert row.get("name", row.get("id")) in table


def test_policies_names_every_entry_point_with_what_it_is() -> None:
    rows = json.loads(CliRunner().invoke(app, ["list", "policies", "--json"]).stdout)
    by_name = {row["name"]: row for row in rows}
    assert {"static", "hpa-cpu", "ds2", "justin-paper", "justin-artifact"} <= by_name.keys()
    assert not [row for row in rows if str(row["about"]).startswith("cannot be loaded")]


def test_json_has_no_number_that_json_does_not_know() -> None:
    import numpy as np

    value = {"nan": float("nan"), "array": np.array([1.5, np.inf]), 3: np.int64(4), "p": Path("a")}
    assert plain(value) == {"nan": None, "array": [1.5, None], "3": 4, "p": "a"}
    with pytest.raises(TypeError, match="object cannot be written"):
        plain(object())


def test_a_table_shows_brackets_and_absent_values(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "value"], [["[bold]", None]])
    assert capsys.readouterr().out.split() == ["name", "value", "[bold]", "–"]


def test_help_starts_without_anything_heavy() -> None:
    code = (
        "import sys\n"
        "from dsp_gym.cli import app\n"
        "heavy = {'torch', 'mlflow', 'matplotlib', 'scipy', 'pandas', 'numba', 'sb3_contrib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unwritable_cache_of_compiled_code_is_said_with_its_remedy():
    from dsp_gym.cli.errors import as_user_error

    error = as_user_error(RuntimeError("cannot cache function 'advance': no locator available"))
    assert error is not None
    assert "NUMBA_CACHE_DIR" in str(error)
    assert as_user_error(RuntimeError("something else")) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dsp-gym flink submit flink-q1", ["flink-q1", "flink-q11"]),
        ("dsp-gym record flink-w", ["flink-wordcount"]),
        ("dsp-gym shadow flink-q", ["flink-q11", "flink-q11-day"]),
        ("dsp-gym calibrate ./my", []),  # the shell completes paths
        ("dsp-gym reco", ["record"]),
    ],
)
def test_the_shell_completes_commands_and_shipped_names(line: str, expected: list[str]) -> None:
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    asked["_DSP_GYM_COMPLETE"] = "complete_bash"
    answer = CliRunner().invoke(app, [], prog_name="dsp-gym", env=asked)
    assert answer.output.split() == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "given", "expected"), [("list", None, "1"), ("list", "3", "3"), ("train", None, "")]
)
def test_linear_algebra_has_one_thread_unless_the_user_says_otherwise(command, given, expected):
    """Said before NumPy is imported, as it asks once."""
    code = (
        "import os, sys\n"
        "from dsp_gym.cli import main\n"
        "assert 'numpy' not in sys.modules\n"
        f"sys.argv = ['dsp-gym', '{command}', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('threads:', os.environ.get('OPENBLAS_NUM_THREADS', ''))\n"
    )
    env = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    env |= {} if given is None else {"OPENBLAS_NUM_THREADS": given}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1].strip() == f"threads: {expected}".strip(), done.stderr


def test_a_seed_that_no_experiment_may_hold_is_refused_before_anything_is_written(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["train", "quickstart", "--seed", "5000000000"])
    assert done.exit_code == 2
    assert "--seed" in done.output
    assert not list(tmp_path.iterdir())
