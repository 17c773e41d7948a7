"""What an environment keeps of an episode so that it can be rendered."""

from __future__ import annotations

from dsp_gym.arrays import Bools
from dsp_gym.envs.core import BatchStep, EnvCore
from dsp_gym.envs.watch.canvas import Pixels, need_pillow
from dsp_gym.envs.watch.episode_data import Moment, Scene, Story
from dsp_gym.envs.watch.job_view import JobView
from dsp_gym.envs.watch.text import as_text
from dsp_gym.errors import ConfigError, did_you_mean

__all__ = ["RENDER_MODES", "Pixels", "EpisodeWatcher", "BatchWatcher", "watcher_of"]

RENDER_MODES = ("ansi", "rgb_array")


class EpisodeWatcher:
    """Keeps one job's episode, and draws it when it is asked to."""

    def __init__(self) -> None:
        self._story: Story | None = None
        self._view: JobView | None = None

    def __bool__(self) -> bool:
        return self._story is not None

    @property
    def story(self) -> Story:
        """The episode so far."""
        if self._story is None:
            raise RuntimeError("reset() comes first")
        return self._story

    def begin(self, core: EnvCore, job: int) -> None:
        """Start with the first snapshot of an episode.

        Args:
            core: The environment.
            job: Its row.
        """
        label, length_s = core.load_labels[job], float(core.config.episode_s)
        skipped_s = float(core.steps[job]) * core.config.interval_s
        scene = Scene.of(core.topology, job, label, length_s - skipped_s)
        self._story, self._view = Story(scene), None
        self._story.add(Moment.of(core.snapshot, job))

    def add(self, core: EnvCore, job: int, step: BatchStep) -> None:
        """Take in one step.

        Args:
            core: The environment, after the step.
            job: Its row.
            step: The result of the step.
        """
        said = decided(step, job, self.story)
        self.story.add(Moment.of(core.snapshot, job, step.outcome, said))

    def text(self) -> str:
        """Write the episode as text.

        Returns:
            Lines.
        """
        return as_text(self.story)

    def picture(self) -> Pixels:
        """Draw the episode as a picture.

        Returns:
            (720, 1280, 3) of uint8.

        Raises:
            MissingExtraError: Pillow is not installed.
        """
        if self._view is None:
            self._view = JobView(self.story.scene)
        return self._view.frame(self.story)


class BatchWatcher:
    """Keep the episodes of all jobs of a batch.

    Args:
        jobs: How many there are.
        render_mode: "rgb_array".

    Raises:
        ConfigError: A batch has no such render mode.
        MissingExtraError: Pillow is not installed.
    """

    def __init__(self, jobs: int, render_mode: str) -> None:
        if render_mode != "rgb_array":
            raise ConfigError(
                "is not a render mode of a batch",
                key="render_mode",
                value=render_mode,
                remedy="Take 'rgb_array', a picture for each job.",
            )
        need_pillow()
        self._each = [EpisodeWatcher() for _ in range(jobs)]

    def begin(self, core: EnvCore, mask: Bools | None = None) -> None:
        """Start with the first snapshot of new episodes.

        Args:
            core: The environments.
            mask: (J,) those that begin; None: all.
        """
        for job, watcher in enumerate(self._each):
            if mask is None or mask[job]:
                watcher.begin(core, job)

    def add(self, core: EnvCore, step: BatchStep) -> None:
        """Take in one step of all jobs."""
        for job, watcher in enumerate(self._each):
            watcher.add(core, job, step)

    def pictures(self) -> tuple[Pixels, ...]:
        """Draw every job's episode as a picture.

        Returns:
            One (720, 1280, 3) of uint8 for each job.
        """
        return tuple(watcher.picture() for watcher in self._each)


def watcher_of(render_mode: str | None) -> EpisodeWatcher | None:
    """Choose the watcher of a render mode.

    Args:
        render_mode: Of the environment.

    Returns:
        A watcher; None where nothing is rendered.

    Raises:
        ConfigError: There is no such render mode.
        MissingExtraError: Pillow is not installed, and pictures will be asked for.
    """
    if render_mode is None:
        return None
    if render_mode not in RENDER_MODES:
        raise ConfigError(
            "is not a render mode of this environment",
            key="render_mode",
            value=render_mode,
            remedy="gymnasium.make puts a window around 'rgb_array' where it is given 'human'."
            if render_mode == "human"
            else did_you_mean(render_mode, RENDER_MODES),
        )
    if render_mode == "rgb_array":
        need_pillow()
    return EpisodeWatcher()


def decided(step: BatchStep, job: int, story: Story) -> str:
    """Write the decision of a step in words.

    Args:
        step: The result of the step.
        job: The row.
        story: The episode before it.

    Returns:
        What is asked for, and what guardrails changed about it.
    """
    before, guarded = story.now, step.guarded
    changes = []
    for place, vertex in enumerate(story.scene.vertices):
        tasks = int(guarded.parallelism[job, place])
        if tasks != before.parallelism[place]:
            changes.append(f"{vertex.name} {before.parallelism[place]} to {tasks} tasks")
        level = int(guarded.memory_level[job, place])
        if level != before.memory_level[place]:
            more = "more" if level > before.memory_level[place] else "less"
            changes.append(f"{vertex.name} {more} memory")
    said = ", ".join(changes) or "hold"
    guards = dict.fromkeys(one.guardrail for one in guarded.interventions if one.job == job)
    return f"Decision: {said}" + (f" (changed by {', '.join(guards)})" if guards else "")
