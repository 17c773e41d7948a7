"""Watching a job: frames of 1280 x 720 pixels, films of them, and a view of text.

    story = Story(Scene.of(topology, 0, "flash-crowd"))
    story.add(Moment.of(snapshot, 0, outcome))
    picture = JobView(story.scene).frame(story)  # (720, 1280, 3) of uint8

Pictures are drawn with Pillow, of the extra `video`; the text needs nothing.
"""

from __future__ import annotations

from dsp_gym.envs.watch.episode_data import Moment, Scene, Story
from dsp_gym.envs.watch.film import FILM_FORMATS, write_film
from dsp_gym.envs.watch.job_view import JobView
from dsp_gym.envs.watch.side_by_side import SideBySide
from dsp_gym.envs.watch.text import as_text
from dsp_gym.envs.watch.theme import theme

__all__ = [
    "FILM_FORMATS",
    "JobView",
    "Moment",
    "Scene",
    "SideBySide",
    "Story",
    "as_text",
    "theme",
    "write_film",
]
