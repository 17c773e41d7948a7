"""The film of `dsp-gym simulate --video`: one to three policies beside each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.cli.progress import bar

if TYPE_CHECKING:
    from dsp_gym.control.loop import LoopStep
    from dsp_gym.envs.watch import Story
    from dsp_gym.envs.watch.theme import Scheme

__all__ = ["Filming", "film", "policies_of"]

FPS = {".gif": 12, ".mp4": 30}
WIDTHS = {".gif": 960, ".mp4": 1280}
"""Frames a second and pixels across, by the ending of the file."""


@dataclass
class Filming:
    """Takes in the steps of policies as they are played.

    Args:
        load: Name of the load.
        length_s: Of the episode.
        told: Hears of each step.
    """

    load: str
    length_s: float
    told: Callable[[], None] = lambda: None
    stories: dict[str, Story] = field(default_factory=dict)
    _last: dict[str, LoopStep] = field(default_factory=dict)

    def take(self, label: str, taken: int, steps: int, step: LoopStep) -> None:
        """Take in one step; after the last one the end of its interval, too."""
        from dsp_gym.envs.watch import Moment, Scene, Story

        topology = step.snapshot.topology
        if label not in self.stories:
            self.stories[label] = Story(Scene.of(topology, 0, self.load, self.length_s))
        before = self._last.get(label)
        story, said = self.stories[label], step.decision.reasons[0]
        story.add(Moment.of(step.snapshot, 0, None if before is None else before.outcome, said))
        self._last[label] = step
        if taken == steps:
            end = Moment.of(step.snapshot, 0, step.outcome, said)
            story.add(replace(end, t_s=end.t_s + end.seconds))
        self.told()


def policies_of(policy: str, policies: str | None) -> list[str]:
    """The policies of a comparison.

    Args:
        policy: The one that is asked for by itself.
        policies: Several with commas between, or None.

    Returns:
        One to three names, YAML files or folders.

    Raises:
        ConfigError: There are more, one is named twice, or a name is empty.
    """
    from dsp_gym.envs.watch.side_by_side import MOST_POLICIES
    from dsp_gym.errors import ConfigError

    if policies is None:
        return [policy]
    names = [name.strip() for name in policies.split(",")]
    if not all(names) or len(set(names)) < len(names) or len(names) > MOST_POLICIES:
        raise ConfigError(
            f"one to {MOST_POLICIES} different policies are shown beside each other",
            key="--policies",
            value=policies,
            remedy="Write them with commas between, such as ds2,learned.",
        )
    return names


def film(path: Path, filming: Filming, length_s: float, scheme: Scheme) -> Path:
    """Draw what was taken in and write it.

    Args:
        path: The file; its ending says the format.
        filming: The policies' episodes.
        length_s: Of the film.
        scheme: Dark or light.

    Returns:
        The path.
    """
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    from dsp_gym.envs.watch import SideBySide, write_film
    from dsp_gym.envs.watch.canvas import Pixels

    ending = path.suffix.lower()
    fps = FPS[ending]
    frames = max(2, round(length_s * fps))
    view = SideBySide(list(filming.stories.items()), scheme)
    with bar(
        TextColumn("Drawing"), BarColumn(), TextColumn("left"), TimeRemainingColumn()
    ) as shown:
        task = shown.add_task("Drawing", total=frames)

        def drawn(place: int) -> Pixels:
            shown.update(task, completed=place)
            return view.frame(place / (frames - 1))

        return write_film(path, frames, drawn, fps=fps, width=WIDTHS[ending])
