"""Starting is quick, because heavy imports are delayed until they are used.

How long it takes: `dsp-gym bench start`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsp_gym.cli import app, main

HEAVY = {
    "agents", "gymnasium", "kubernetes", "matplotlib", "minari", "mlflow", "numba", "numpy",
    "optuna", "pandas", "prometheus_client", "pyarrow", "pydantic", "pyspark", "scipy", "sklearn",
    "torch", "yaml",
}  # fmt: skip

HELP = """
import contextlib, io
import dsp_gym.cli
sys.argv = ["dsp-gym", "--help"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    dsp_gym.cli.main()
"""


COMPLETION = f"""
import os
os.environ |= {{"_DSP_GYM_COMPLETE": "complete_bash", "COMP_WORDS": "dsp-gym ", "COMP_CWORD": "1"}}
{HELP}
"""

REGISTERED = "print(len([name for name in gymnasium.registry if name.startswith('dsp_gym/')]))"

ASYNCHRONOUS = """
import dsp_gym
import gymnasium

def made():
    return gymnasium.make("dsp_gym:dsp_gym/Nexmark-Q1-v1")

if __name__ == "__main__":
    by_id = gymnasium.make_vec(
        "dsp_gym/Nexmark-Q1-v1",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"context": "spawn"},
    )
    by_function = gymnasium.vector.AsyncVectorEnv([made, made], context="spawn")
    for envs in (by_id, by_function):
        print(envs.reset(seed=0)[0].shape[0])
        envs.close()
"""


def printed(*command: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("code", "expected"),
    # Typer itself takes pydantic to read the values of options.
    [("import dsp_gym", "[]"), (HELP, "[]"), (COMPLETION, "['pydantic']")],
    ids=["import", "help", "completion"],
)
def test_it_opens_no_heavy_door(code: str, expected: str) -> None:
    opened = f"import sys\n{code}\nprint(sorted({HEAVY!r} & set(sys.modules)))"
    assert printed("-c", opened) == expected


@pytest.mark.parametrize(
    "code",
    [
        f"import dsp_gym, gymnasium\n{REGISTERED}",
        f"import gymnasium, dsp_gym\n{REGISTERED}",
        f"import dsp_gym, gymnasium.spaces, importlib\nimportlib.reload(gymnasium)\n{REGISTERED}",
    ],
    ids=["before", "after", "reloaded"],
)
def test_gymnasium_knows_the_ids_whichever_is_imported_first(code: str) -> None:
    assert printed("-c", code) == "14"


def test_gymnasium_keeps_its_own_loader() -> None:
    """Tools ask it for sources and data files."""
    own = "type(gymnasium.__loader__).__name__, type(gymnasium.__spec__.loader).__name__"
    code = f"import dsp_gym, gymnasium\nprint({own})"
    assert printed("-c", code) == "SourceFileLoader SourceFileLoader"


def test_importing_it_without_gymnasium_fails_only_where_gymnasium_is_used() -> None:
    missing = (
        "import sys, dsp_gym\n"
        "sys.path = [entry for entry in sys.path if 'site-packages' not in entry]\n"
        "try:\n    import gymnasium\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    assert printed("-c", missing) == "No module named 'gymnasium'"


@pytest.mark.slow
def test_processes_of_a_vector_environment_find_the_ids(tmp_path: Path) -> None:
    script = tmp_path / "asynchronous.py"
    script.write_text(ASYNCHRONOUS)
    # Five processes load numba for seconds each, to reset an environment once.
    assert printed(str(script), NUMBA_DISABLE_JIT="1").split() == ["2", "2"]


def test_help_shows_what_the_whole_command_line_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`main` lists the commands without reading their options."""
    with contextlib.suppress(SystemExit):
        app(["--help"], prog_name="dsp-gym")
    whole = capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["dsp-gym", "--help"])
    with contextlib.suppress(SystemExit):
        main()
    assert "evaluate" in whole
    assert capsys.readouterr().out == whole


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dsp-gym poli", ["policy"]),
        ("dsp-gym policy", ["policy"]),
        ("dsp-gym policy ", ["import", "pull", "promote", "show"]),
        ("dsp-gym --debug record flink-w", ["flink-wordcount"]),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_main_completes_names_of_commands_and_what_belongs_to_one(
    shell: str,
    line: str,
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["dsp-gym"])
    monkeypatch.setenv("_DSP_GYM_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS" if shell == "bash" else "_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    with contextlib.suppress(SystemExit):
        main()
    found = capsys.readouterr().out
    assert {name for name in expected if name in found} == set(expected)
    if shell == "bash":
        assert sorted(found.split()) == sorted(expected)
