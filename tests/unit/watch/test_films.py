"""Films: GIF and MP4, whole or not at all; `dsp-gym simulate --plot`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app, picture
from dsp_gym.cli.options import names_of
from dsp_gym.envs.watch import write_film
from dsp_gym.errors import ConfigError, MissingExtraError

Image = pytest.importorskip("PIL.Image")
RUN = ["simulate", "nexmark-q1", "--duration", "10m"]


def square(place):
    """A white square that moves over a dark ground, and a red dot that is always there."""
    pixels = np.full((90, 160, 3), (20, 23, 28), np.uint8)
    pixels[20:40, 10 * place : 10 * place + 20] = 240
    pixels[80:84, 4:8] = (255, 40, 40)
    return pixels


def test_a_gif_shows_every_frame_and_rests_at_the_end(tmp_path):
    file = write_film(tmp_path / "a.gif", 8, square, fps=10, width=160)
    with Image.open(file) as film:
        assert (film.n_frames, film.size, film.info["loop"]) == (8, (160, 90), 0)
        for place in range(8):
            film.seek(place)
            shown = np.array(film.convert("RGB")).astype(int)
            assert np.abs(shown - square(place)).max() <= 12
        assert film.info["duration"] == 1500


def test_a_narrower_film_keeps_its_shape(tmp_path):
    file = write_film(tmp_path / "a.gif", 3, square, fps=10, width=83)
    with Image.open(file) as film:
        assert film.size == (82, 46)


def test_an_mp4_is_written(tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    file = write_film(tmp_path / "a.mp4", 6, square, fps=10, width=160)
    told = next(ffmpeg.read_frames(str(file)))
    assert told["size"] == (160, 90)
    assert told["codec"] == "h264"


def test_a_film_that_breaks_off_leaves_no_file(tmp_path):
    def breaking(place):
        if place == 5:
            raise KeyboardInterrupt
        return square(place)

    with pytest.raises(KeyboardInterrupt):
        write_film(tmp_path / "a.gif", 6, breaking, fps=10, width=160)
    assert not list(tmp_path.iterdir())


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"\.gif or \.mp4"):
        write_film(tmp_path / "a.avi", 6, square, fps=10, width=160)


def test_a_missing_package_is_named_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dsp-gym\[video\]'"):
        write_film(tmp_path / "a.mp4", 6, square, fps=10, width=160)


@pytest.mark.slow
def test_policies_are_filmed_beside_each_other(tmp_path, monkeypatch):
    file = tmp_path / "two.gif"
    monkeypatch.setattr(picture, "LENGTH_S", 1)
    told = ["--policies", "ds2,static", "--plot", str(file)]
    done = CliRunner().invoke(app, [*RUN, *told])
    assert done.exit_code == 0, done.output
    assert f"Plot: {file}" in done.stdout
    with Image.open(file) as film:
        assert film.size == (960, 540)
        assert film.n_frames == 12
        first = np.array(film.convert("RGB"))
        film.seek(11)
        assert (np.array(film.convert("RGB")) != first).any()


def test_policies_are_compared_without_a_film():
    done = CliRunner().invoke(app, [*RUN, "--policies", "ds2,static", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["policies"]
    assert list(found) == ["ds2", "static"]
    assert found["static"]["cost"] > 0
    told = CliRunner().invoke(app, [*RUN, "--policies", "ds2,static"]).stdout
    assert [line.split()[0] for line in told.splitlines()[:3]] == ["policy", "ds2", "static"]


def test_a_picture_is_the_last_frame(tmp_path):
    file = tmp_path / "one.png"
    done = CliRunner().invoke(app, [*RUN, "--plot", str(file)])
    assert done.exit_code == 0, done.output
    with Image.open(file) as drawn:
        assert drawn.size == (1280, 720)


@pytest.mark.parametrize("policies", ["ds2,ds2", "ds2,,static", ""])
def test_different_policies_are_taken(policies):
    with pytest.raises(ConfigError, match="different names"):
        names_of(policies, "--policies")


@pytest.mark.parametrize(
    "told",
    [
        ["--plot", "film.avi"],
        ["--policies", "ds2,static,hpa-cpu,dhalion", "--plot", "four.gif"],
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_runs(told):
    done = CliRunner().invoke(app, [*RUN, *told])
    assert done.exit_code == 2
    assert "Traceback" not in done.output
