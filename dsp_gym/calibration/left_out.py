"""How far a fit is off where it had not looked: each run left out once.

Where a calibration holds no run out, its error is that of fits that each leave one run out and
predict it; of more than `FOLDS` runs, every fit leaves out several of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsp_gym.calibration.errors import Compared, compare
from dsp_gym.calibration.fit import fit
from dsp_gym.calibration.observations import SteadyPart
from dsp_gym.job.spec import JobSpec

__all__ = ["EACH_RUN", "FOLDS", "HELD_OUT", "left_out"]

HELD_OUT, EACH_RUN = "runs held out", "each run left out in turn"
"""What the predicted runs of a report are."""

FOLDS = 12
"""Most fits that are made; each takes a second or a few."""


def left_out(spec: JobSpec, seen: Sequence[SteadyPart]) -> list[Compared]:
    """Predicts every part by a fit to the other runs.

    Args:
        spec: the job, with its priors.
        seen: the parts that are fitted.

    Returns:
        One comparison per part, none of them in its fit; empty where there is a single run.
    """
    names = list(dict.fromkeys(o.run for o in seen))
    if len(names) < 2:
        return []
    found = []
    for fold in range(min(FOLDS, len(names))):
        chosen = frozenset(names[fold::FOLDS])
        rest = [o for o in seen if o.run not in chosen]
        model = fit(spec, rest).model()
        found += compare(model, [o for o in seen if o.run in chosen], frozenset())
    return found
