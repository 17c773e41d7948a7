"""The film or picture of `dsp-gym simulate --plot`: one to three policies beside each other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from dsp_gym.cli.output import refuse_unwritable
from dsp_gym.cli.progress import bar
from dsp_gym.config.files import write_atomic
from dsp_gym.control.loop import LoopStep
from dsp_gym.envs.watch import Moment, Scene, SideBySide, Story, write_film
from dsp_gym.envs.watch.canvas import Pixels, need_pillow
from dsp_gym.envs.watch.film import check_format
from dsp_gym.envs.watch.side_by_side import MOST_POLICIES
from dsp_gym.errors import ConfigError, did_you_mean

FPS = {".gif": 12, ".mp4": 30}
WIDTHS = {".gif": 960, ".mp4": 1280}
"""Frames a second and pixels across, by the ending of the file."""

LENGTH_S = 10
"""Length of a film."""

PICTURES = (".png", *FPS)
"""Endings of what is drawn; `.html` is written from the results."""


def check_plot(file: Path, policies: int) -> None:
    """Refuse a plot that could not be written in the end, before any work is done.

    Args:
        file: The value of `--plot`.
        policies: Number of policies.

    Raises:
        ConfigError: The ending is unknown, or there are too many policies for a picture.
        MissingExtraError: A package is missing that the format needs.
    """
    ending, known = file.suffix.lower(), (".html", *PICTURES)
    refuse_unwritable(file, "--plot")
    if ending not in known:
        raise ConfigError(
            f"ends in none of {', '.join(known)}",
            key="--plot",
            value=str(file),
            remedy=did_you_mean(ending, known),
        )
    if ending in PICTURES and policies > MOST_POLICIES:
        raise ConfigError(
            f"shows {MOST_POLICIES} policies at most",
            key="--plot",
            value=str(file),
            remedy="Leave some out of --policies, or name an .html file.",
        )
    if ending == ".png":
        need_pillow()
    elif ending in FPS:
        check_format(file)


@dataclass
class Filming:
    """Collects the steps of policies as they are played, and draws them.

    Args:
        load: Name of the load.
        length_s: Length of the episode.
    """

    load: str
    length_s: float
    stories: dict[str, Story] = field(default_factory=dict)
    _last: dict[str, LoopStep] = field(default_factory=dict)

    def take(self, label: str, taken: int, steps: int, step: LoopStep) -> None:
        """Take in one step; after the last one the end of its interval, too."""
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

    def draw(self, file: Path) -> None:
        """Draw what was taken in: a film, or its last frame.

        Args:
            file: The file; its ending says the format.
        """
        import io

        from PIL import Image

        view, ending = SideBySide(list(self.stories.items())), file.suffix.lower()
        if ending == ".png":
            stream = io.BytesIO()
            Image.fromarray(view.frame(1.0)).save(stream, "PNG")
            write_atomic(file, stream.getvalue())
            return
        frames = LENGTH_S * FPS[ending]
        with bar() as shown:
            task = shown.add_task("Drawing", total=frames)

            def drawn(place: int) -> Pixels:
                shown.update(task, completed=place)
                return view.frame(place / (frames - 1))

            write_film(file, frames, drawn, fps=FPS[ending], width=WIDTHS[ending])
