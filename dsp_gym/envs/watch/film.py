"""Films of frames: GIF with Pillow, MP4 with FFmpeg as `imageio-ffmpeg` brings it."""

from __future__ import annotations

import io
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dsp_gym.config.files import write_atomic
from dsp_gym.envs.watch.canvas import Pixels, need_pillow
from dsp_gym.errors import ConfigError, MissingExtraError, did_you_mean

if TYPE_CHECKING:
    from PIL import Image

FILM_FORMATS = (".gif", ".mp4")
"""Endings of the files that can be written."""

Film = Callable[[int], Pixels]
"""Draws a frame of the film by its place; called in order, and for a GIF some of them twice."""

_EXACT, _SPREAD = 40, 88
"""Colours of a GIF: the most frequent ones, and others."""

_SAMPLES = 8
"""Frames that the colours of a GIF are taken from."""

_LAST_S = 1.5
"""Seconds that a GIF rests on its last frame, before it begins again."""


def check_format(path: Path) -> None:
    """Refuse a file that could not be written in the end, before any work is done.

    Args:
        path: Of the film.

    Raises:
        ConfigError: Its ending is none of `FILM_FORMATS`.
        MissingExtraError: A package is missing that its format needs.
    """
    ending = path.suffix.lower()
    if ending not in FILM_FORMATS:
        raise ConfigError(
            f"a film ends in {' or '.join(FILM_FORMATS)}",
            value=path.name,
            remedy=did_you_mean(ending, FILM_FORMATS),
        )
    need_pillow()
    if ending == ".mp4":
        try:
            import imageio_ffmpeg  # noqa: F401
        except ModuleNotFoundError as error:
            raise MissingExtraError("video", "writing an MP4 file") from error


def write_film(path: Path, frames: int, film: Film, *, fps: int, width: int) -> Path:
    """Write a film, whole or not at all.

    Args:
        path: The file; its ending says the format.
        frames: How many there are.
        film: Draws them.
        fps: Frames a second.
        width: Of the film in pixels, rounded down to an even number; the height follows.

    Returns:
        The path.

    Raises:
        ConfigError: The ending is none of `FILM_FORMATS`.
        MissingExtraError: A package is missing that the format needs.
        StorageError: The file cannot be written.
    """
    check_format(path)

    def drawn() -> Iterator[Image.Image]:
        return (_resized(film(place), width) for place in range(frames))

    if path.suffix.lower() == ".gif":
        samples = {round(k * (frames - 1) / (_SAMPLES - 1)) for k in range(_SAMPLES)}
        palette = _palette([_resized(film(place), width) for place in sorted(samples)])
        return write_atomic(path, _gif(drawn(), palette, frames, fps))
    return write_atomic(path, _mp4(drawn(), fps))


def _resized(pixels: Pixels, width: int) -> Image.Image:
    from PIL import Image

    image = Image.fromarray(pixels)
    size = width // 2 * 2, round(image.height * width / image.width) // 2 * 2
    return image if size == image.size else image.resize(size, Image.Resampling.LANCZOS)


def _palette(samples: list[Image.Image]) -> Image.Image:
    """Make an image with the colours of all samples, so that all frames share one palette.

    The most frequent ones are kept as they are: grounds and text must not shift. The others are
    chosen so that rare ones, such as a red dot, have one near.
    """
    from PIL import Image

    width, height = samples[0].size
    joined = Image.new("RGB", (width, height * len(samples)))
    for place, image in enumerate(samples):
        joined.paste(image, (0, place * height))
    joined = joined.resize((width // 2, joined.height // 2), Image.Resampling.NEAREST)
    found = joined.getcolors(joined.width * joined.height) or []
    frequent = [colour for _, colour in sorted(found, reverse=True)[:_EXACT]]
    spread = joined.quantize(_SPREAD, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    values = np.array(frequent, np.uint8).ravel().tolist()
    palette = Image.new("P", (1, 1))
    palette.putpalette(values + (spread.getpalette() or [])[: 3 * _SPREAD])
    return palette


def _gif(drawn: Iterator[Image.Image], palette: Image.Image, frames: int, fps: int) -> bytes:
    from PIL import Image

    plain = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in drawn)
    each_ms = [round(1000 / fps)] * (frames - 1) + [round(1000 * _LAST_S)]
    stream = io.BytesIO()
    next(plain).save(
        stream,
        "GIF",
        save_all=True,
        append_images=plain,
        duration=each_ms,
        loop=0,
        disposal=1,
        optimize=True,
    )
    return stream.getvalue()


def _mp4(drawn: Iterator[Image.Image], fps: int) -> bytes:
    import imageio_ffmpeg

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "film.mp4"
        first = next(drawn)
        writer = imageio_ffmpeg.write_frames(
            str(file), first.size, fps=fps, codec="libx264", macro_block_size=2, quality=8
        )
        writer.send(None)
        try:
            for image in itertools.chain([first], drawn):
                writer.send(image.tobytes())
        finally:
            writer.close()
        return file.read_bytes()
