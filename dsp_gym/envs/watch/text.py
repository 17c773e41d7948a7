"""A job as text for a terminal: the running configuration, and curves of the last minutes."""

from __future__ import annotations

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.envs.watch.episode_data import Story
from dsp_gym.envs.watch.figures import count, duration, percent
from dsp_gym.pages import money

_BARS = " ▁▂▃▄▅▆▇█"
_COLUMNS = 48
_BUSY_COLUMNS = 20


def as_text(story: Story) -> str:
    """Write the last moment, and curves of those before it.

    Args:
        story: Of the job, with a moment at least.

    Returns:
        One line on the job, one per vertex, then figures and curves; at most 80 columns but for
        long names of vertices.
    """
    now, scene = story.now, story.scene
    lines = [f"t = {now.t_s:.0f} s, {now.status.name}"]
    for place, vertex in enumerate(scene.vertices):
        busy = float(now.busy[place])
        told = "unknown" if busy != busy else f"{1000 * busy:.0f} ms/s {_bar(busy)}"
        lines.append(
            f"{vertex.name}: parallelism {now.parallelism[place]}, "
            f"level {now.memory_level[place]}, busy {told}".rstrip()
        )
    late, cost = float(story.late_share()[-1]), float(story.cost()[-1])
    lines += [
        f"load     {count(now.offered_per_s) + '/s':<10}{sparkline(story.series('offered_per_s'))}",
        f"latency  {duration(now.latency_p95_s):<10}{sparkline(story.series('latency_p95_s'))}",
        f"backlog  {count(now.pending):<10}{sparkline(story.series('pending'))}",
        f"cost     {money(cost, scene.currency):<10}{sparkline(story.series('cost_per_hour'))}",
        f"late {percent(late)} of the time (bound {duration(scene.slo_s)}), "
        f"{int(story.rescaled().sum())} rescales",
    ]
    return "\n".join(line.rstrip() for line in lines)


def sparkline(values: Floats, columns: int = _COLUMNS) -> str:
    """Draw the last values as bars, from zero to the highest.

    Args:
        values: At or above zero; NaN: unknown, a space.
        columns: At most so many.

    Returns:
        One character per value.

    >>> sparkline(np.array([0.0, 4.0, np.nan, 8.0]))
    '▁▄ █'
    """
    shown = np.asarray(values, np.float64)[-columns:]
    highest = max([float(np.nanmax(shown))] if np.isfinite(shown).any() else [0.0])
    steps = len(_BARS) - 1
    return "".join(
        " " if value != value else _BARS[max(1, round(steps * value / highest) if highest else 1)]
        for value in shown
    )


def _bar(share: float) -> str:
    return "█" * round(_BUSY_COLUMNS * min(1.0, share))
