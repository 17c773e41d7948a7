"""`dsp-gym scorecard`: from a journal to a page, and to the registry on a person's command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.trackers.mlflow import MlflowTracker

pytestmark = pytest.mark.slow

POLICIES = "policies: [{name: ds2, policy: ds2-justin}, incumbent]"


@pytest.fixture(scope="module")
def journal(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("shadow")
    config = root / "run.yaml"
    config.write_text(f"job: nexmark-q1\n{POLICIES}\ngate: {{min_days: 0.02}}\n", encoding="utf-8")
    arguments = ["shadow", str(config), "--simulated", "diurnal", "--duration", "30m", "--journal",
                 str(root / "journal")]  # fmt: skip
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return root / "journal"


def invoke(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_the_terminal_shows_claims_error_and_verdict(journal):
    said = invoke("scorecard", journal, "--seeds", 2)
    assert "the model on the observed run" in said
    # The start is far too small: DS2 scales up to be late 61 points less, at three times the cost.
    assert "ds2: rescue\n" in said
    assert re.search(r"holds +saving: costs 2\d\d % more \[.*; a rescue may cost up to 5", said)
    assert re.search(r"holds +SLO: late 6\d(\.\d)? points less than the incumbent", said)
    assert re.search(r"holds +failures: 0 of 30 decisions failed", said)


def test_json_and_page(journal, tmp_path):
    page = tmp_path / "card.html"
    document = json.loads(invoke("scorecard", journal, "--seeds", 2, "--json", "--html", page))
    assert document["job"] == "nexmark-q1"
    assert {name: verdict["word"] for name, verdict in document["verdicts"].items()} == {
        "ds2": "rescue"
    }
    assert '<div class="chart"' in page.read_text(encoding="utf-8")


def test_the_verdict_is_written_on_a_version_and_only_a_person_moves_the_alias(journal, tmp_path):
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "policy.json").write_text("{}", encoding="utf-8")
    tracker = MlflowTracker(uri, "shadow")
    tracker.start("train", {})
    tracker.register(folder, "q1", "champion")
    assert tracker.register(folder, "q1", None) == "models:/q1/2"
    tracker.end()
    invoke("scorecard", journal, "--seeds", 2, "--register", "models:/q1/2", "--uri", uri)
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    tags = client.get_model_version("q1", "2").tags
    assert tags["shadow.verdict"] == "rescue"
    assert tags["shadow.saving"].startswith("costs 2")
    assert client.get_model_version_by_alias("q1", "champion").version == 1
    said = invoke("policy", "promote", "models:/q1/2", "--alias", "champion", "--uri", uri)
    assert tags["shadow.verdict"] in said
    assert client.get_model_version_by_alias("q1", "champion").version == 2


def test_wrong_names_are_refused(journal, tmp_path):
    assert "holds no journal" in invoke("scorecard", tmp_path, code=2)
    assert "was not watched" in invoke(
        "scorecard", journal, "--seeds", 2, "--policy", "ds3", "--register", "models:/q1/1", code=2
    )
    assert "is not an address" in invoke("policy", "promote", "q1", code=2)
