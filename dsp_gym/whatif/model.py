"""The model of a job, fitted to its own history."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dsp_gym.job.spec import JobSpec
from dsp_gym.whatif.history import JobHistory
from dsp_gym.whatif.rescales import counted


def fitted(history: JobHistory) -> JobHistory:
    """Fit the model to the steady parts of the history, and its outages to the observed ones.

    It has room for the deployed configurations, see `as_deployed`.

    Returns:
        The history with the fitted job; without steady parts the job keeps its numbers.
    """
    history = as_deployed(history)
    if not history.parts:
        spec = with_outages(history.spec, history)
        return replace(history, spec=spec)
    from dsp_gym.calibration.fit import fit  # SciPy, which a followed journal does without

    found = fit(history.spec, history.parts)
    notes = [f"the fit leaves out the part at {part}" for part in found.outliers]
    unknown = tuple(one.name for one in found.parameters if not one.identified)
    if unknown:
        notes.append(f"the history does not show {', '.join(unknown)}: the job file's values stay")
    return replace(
        history,
        spec=with_outages(found.spec, history),
        notes=(*history.notes, *notes),
        assumed=unknown,
        parts=(),
    )


def as_deployed(history: JobHistory) -> JobHistory:
    """Make room in the model for the deployed configurations.

    A vertex that ran on more tasks than the job file allows may do so; one that the file holds
    fixed runs as it was deployed, and is scaled where it was rescaled. The model holds sources
    fixed: they run as they mostly did.

    Returns:
        The history with the job, and with a note for each vertex whose bound was raised.
    """
    spec = history.spec
    vertices, notes = [], []
    cap = int(spec.max_parallelism_per_vertex)
    for v, vertex in enumerate(spec.topological_order()):
        tasks = history.wanted[:, v]
        most, usual = int(tasks.max()), int(np.bincount(tasks).argmax())
        update: dict[str, object] = {"max_parallelism": max(int(vertex.max_parallelism), most)}
        if vertex.kind == "source":
            vertices.append(vertex.model_copy(update={**update, "parallelism": usual}))
            continue
        if not vertex.scalable:
            update |= {"parallelism": usual, "scalable": bool(np.ptp(tasks) > 0)}
        if vertex.scalable and most > min(cap, int(vertex.max_parallelism)):
            bound = min(cap, int(vertex.max_parallelism))
            notes.append(
                f"{vertex.name} ran on {most} tasks, the job file allows {bound}: policies may "
                "use as many as ran"
            )
        cap = max(cap, most)
        vertices.append(vertex.model_copy(update=update))
    by_name = {vertex.name: vertex for vertex in vertices}
    update = {
        "vertices": tuple(by_name[vertex.name] for vertex in spec.vertices),
        "max_parallelism_per_vertex": cap,
    }
    job = spec.model_copy(update=update)
    return replace(history, spec=job, notes=(*history.notes, *notes))


def with_outages(spec: JobSpec, history: JobHistory) -> JobSpec:
    """The job with the outages of the observed rescales.

    Returns:
        A copy; the job itself where no rescale was timed.
    """
    outages = counted(history.drawn_outages_s)
    if not outages:
        return spec
    low, middle, high = np.quantile(outages, (0.1, 0.5, 0.9)).tolist()
    observed = {"outage_s": (low, middle, high), "preset": None}
    rescale = spec.rescale.model_copy(update=observed)
    return spec.model_copy(update={"rescale": rescale})
