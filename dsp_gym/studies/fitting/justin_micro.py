"""Fits the `justin-*` micro-benchmarks to the inequalities of Justin's section 3.

    python -m dsp_gym.studies.fitting.justin_micro [--write]

The figure is not published as numbers; the text says which configurations sustain the target. Five
numbers (CPU, read hit, extra of a miss, write, space factor) are sought that keep every throughput
on its side of 99 % of the target, with a margin. Many solutions would do; this is the one least
squares gives from a fixed start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import typer

from dsp_gym.arrays import Floats
from dsp_gym.calibration.evidence import with_section
from dsp_gym.config import files
from dsp_gym.config.strict_yaml import parse_yaml
from dsp_gym.errors import MissingExtraError
from dsp_gym.job.capacity import mst_per_s
from dsp_gym.job.evidence import Evidence
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import JobTables, compile_jobs
from dsp_gym.studies.fitting.fitted_values import fitted_values, with_values

COMMAND = "python -m dsp_gym.studies.fitting.justin_micro --write"

MEMORY_MIB = (128, 256, 512, 1024, 2048)
START = {
    "cpu_us": 15.0,
    "read_hit_us": 60.0,
    "read_miss_us": 400.0,
    "write_us": 60.0,
    "space_factor": 1.8,
}
FAR = (0.0, 0.97)  # clearly not sustained
KEPT = (1.05, np.inf)  # clearly sustained
BANDS: dict[str, dict[tuple[int, int], tuple[float, float]]] = {
    # (tasks, MiB) to the share of the target it must reach; the others follow by monotonicity.
    "read": {
        (4, 1024): KEPT,
        (8, 512): KEPT,
        (8, 256): (0.95, 0.98),  # just below
        (4, 512): FAR,
        (2, 2048): FAR,
    },
    # 4 tasks are very close, also with 128 MB.
    "write": {(8, 128): KEPT, (4, 128): (0.972, 0.98), (4, 256): (0.975, 0.989)},
    "update": {(8, 256): KEPT, (8, 128): FAR, (4, 2048): FAR},
}


def shares(tables: JobTables, target_per_s: float, at: Sequence[tuple[int, int]]) -> list[float]:
    """Share of the target each (tasks, MiB) reaches; columns are source, state, sink.

    Returns:
        One share per pair, in the order given; 1 where the target is just carried.
    """
    return [
        mst_per_s(
            tables,
            0,
            np.array([1, tasks, 1]),
            np.array([0, MEMORY_MIB.index(mib), 0]),
        )
        / target_per_s
        for tasks, mib in at
    ]


def fit(texts: Mapping[str, str]) -> dict[str, float]:
    """The five numbers, from the text of each workload's job file.

    Returns:
        Fitted values by the names of `START`, in the units of the job file.
    """
    try:
        from scipy.optimize import minimize
    except ModuleNotFoundError:
        raise MissingExtraError("dev", "fitting a job file") from None
    specs = {
        name: files.parse(JobSpec, parse_yaml(text, file=name), name)
        for name, text in texts.items()
    }
    tables = {name: compile_jobs([spec]) for name, spec in specs.items()}
    start = np.array(list(START.values()))
    # Bytes per entry with a space factor of 1.
    entry_mib = {
        name: tables[name].entry_mib[0, 1] / _space_factor(spec) for name, spec in specs.items()
    }

    def loss(scale: Floats) -> float:
        values = dict(zip(START, start * np.exp(scale), strict=True))
        total = 1e-4 * float(np.sum(scale**2))  # of equal solutions, the one next to the start
        for name, spec in specs.items():
            _set(tables[name], values, entry_mib[name])
            bands = BANDS[name]
            reached = shares(tables[name], spec.source.rate_per_s, list(bands))
            for share, (low, high) in zip(reached, bands.values(), strict=True):
                outside = max(low - share, share - high, 0.0)
                total += outside**2
        return total

    simplex = np.vstack([np.zeros(len(start)), 0.1 * np.eye(len(start))])
    options = {"initial_simplex": simplex, "xatol": 1e-5, "fatol": 1e-12, "maxiter": 4000}
    best = minimize(loss, np.zeros(len(start)), method="Nelder-Mead", options=options).x
    return dict(zip(START, (start * np.exp(best)).tolist(), strict=True))


def evidence_of(name: str, text: str) -> Evidence:
    """The ranges of the published inequalities; nothing is left to test the fit on.

    Returns:
        The section `fitted` of the job file.
    """
    spec = files.parse(JobSpec, parse_yaml(text, file=name), name)
    tasks, mib = zip(*BANDS[name], strict=True)
    rate = spec.source.rate_per_s
    return Evidence(
        command=COMMAND,
        runs=len(tasks),
        parallelism={"state": (min(tasks), max(tasks))},
        managed_memory_mib=(min(mib), max(mib)),
        rate_per_s=(rate, rate),
    )


def _space_factor(spec: JobSpec) -> float:
    state = spec.vertex("state").state
    return 1.0 if state is None else state.space_factor


def _set(tables: JobTables, values: Mapping[str, float], entry_mib: float) -> None:
    tables.cpu_s[0, 1] = values["cpu_us"] * 1e-6
    tables.read_hit_s[0, 1] = values["read_hit_us"] * 1e-6
    tables.read_miss_s[0, 1] = values["read_miss_us"] * 1e-6
    tables.write_s[0, 1] = values["write_us"] * 1e-6
    tables.entry_mib[0, 1] = values["space_factor"] * entry_mib


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    import argparse

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the fitted job files")
    options = parser.parse_args(arguments)
    paths = {name: files.find("jobs", f"justin-{name}") for name in BANDS}
    texts = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    values = fit(texts)
    typer.echo(", ".join(f"{name} {value:.4g}" for name, value in values.items()))
    for name, path in paths.items():
        known = fitted_values(texts[name])
        text = with_values(texts[name], {key: values[key] for key in values if key in known})
        text = with_section(text, evidence_of(name, text))
        if options.write:
            typer.echo(f"written: {files.write_atomic(path, text)}")


if __name__ == "__main__":
    main()
