"""Writes the pages whose tables come from code, and the table of published numbers.

    python docs/generate.py                  reference, environments, API and reproduction.md
    python docs/generate.py --tables-only    without reproduction.md, in a few seconds

Published numbers are recomputed by `dsp-gym reproduce`; some of them need the data folder
(DSP_GYM_DATA). A test compares the committed reference with what this file writes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import typer
from generator.api import api
from generator.clients import clients
from generator.commands import command_line
from generator.environment import action_and_reward, metrics, observation, scorecard
from generator.releases import flink_releases
from generator.scenarios import scenarios
from generator.schema import config_kind
from generator.shipped import experiments, guardrails, jobs, loads, policies
from generator.versions import versions

from dsp_gym.config.files import write_atomic
from dsp_gym.config.kinds import KINDS
from dsp_gym.studies.reproduce.registry import data_folder

DOCS = Path(__file__).resolve().parent


def pages() -> dict[str, str]:
    """Path below docs/ and content of every page that depends on code alone."""
    return {
        "reference/observation.md": observation(),
        "reference/action-and-reward.md": action_and_reward(),
        "reference/metrics.md": metrics(),
        "reference/policies.md": policies(),
        "reference/guardrails.md": guardrails(),
        "reference/jobs.md": jobs(),
        "reference/loads.md": loads(),
        "reference/experiments.md": experiments(),
        "reference/scorecard.md": scorecard(),
        "reference/flink-releases.md": flink_releases(),
        "reference/cli.md": command_line(),
        "reference/clients.md": clients(),
        "reference/versions.md": versions(),
        **{f"reference/config-{kind}.md": config_kind(kind) for kind in KINDS},
        **scenarios(),
        **api(),
    }


def main() -> None:
    """Write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--tables-only", action="store_true", help="leave reproduction.md alone")
    written = pages()
    if not parser.parse_args().tables_only:
        from generator.published import reproduction  # needs Matplotlib
        from reproduction_plots import PLOTS, drawn

        data = data_folder()
        written["reproduction.md"] = reproduction(data)
        if data is not None:
            for name, plot in PLOTS.items():
                written[f"figures/reproduction/{name}.svg"] = drawn(plot, data)
    for name, content in written.items():
        write_atomic(DOCS / name, content)
        typer.echo(f"docs/{name}")


if __name__ == "__main__":
    main()
