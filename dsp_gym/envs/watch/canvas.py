"""Drawing with Pillow: text, rounded boxes, and washes of colour through a mask.

Shapes are drawn once at four times the size and kept, so that a frame is put together from masks.
The type is Inter 4 (SIL Open Font License, `fonts/`): its Latin glyphs, digits all of one width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from dsp_gym.envs.watch.theme import Colour
from dsp_gym.errors import MissingExtraError

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

Pixels = NDArray[np.uint8]
"""(height, width, 3): red, green and blue."""

Mask = NDArray[np.uint8]
"""(height, width): how much of a colour each pixel takes, 0 to 255."""

Point = tuple[float, float]
Align = Literal["left", "centre", "right"]

_LARGE = 6000
"""Pixels of a box from which its middle is filled without a mask."""

_FINER = 4
"""Shapes are drawn so many times larger, then made smaller: their edges are smooth."""


def need_pillow() -> None:
    """Say what to install where Pillow is missing.

    Raises:
        MissingExtraError: Pillow is not installed.
    """
    try:
        import PIL.Image  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError("video", "drawing a frame") from error


class Sheet:
    """A picture to draw on; x to the right and y downwards, in pixels.

    Args:
        width: Pixels.
        height: Pixels.
        colour: Of the empty picture.
    """

    __slots__ = ("image",)

    def __init__(self, width: int, height: int, colour: Colour) -> None:
        need_pillow()
        from PIL import Image

        self.image: Image.Image = Image.new("RGB", (width, height), colour)

    def copy(self) -> Sheet:
        """Copy the picture.

        Returns:
            The copy.
        """
        copied = object.__new__(Sheet)
        copied.image = self.image.copy()
        return copied

    def pixels(self) -> Pixels:
        """Convert the picture to an array.

        Returns:
            (height, width, 3) of uint8, the caller's own.
        """
        return np.array(self.image)

    def text(
        self,
        at: Point,
        words: str,
        colour: Colour,
        size: int = 13,
        *,
        bold: bool = False,
        align: Align = "left",
    ) -> int:
        """Write one line.

        Args:
            at: Where the line begins, has its centre or ends, on its baseline.
            words: The text.
            colour: Of the letters.
            size: Pixels of the type.
            bold: Whether in the heavier weight.
            align: Which part of the line stands at `at`.

        Returns:
            Width of the line in pixels.
        """
        if not words:
            return 0
        mask, left, top, width = _letters(words, size, bold)
        back = {"left": 0.0, "centre": width / 2, "right": width}[align]
        self.image.paste(colour, (round(at[0] - back) + left, round(at[1]) + top), mask)
        return width

    def box(
        self,
        corner: Point,
        size: Point,
        colour: Colour,
        radius: int = 0,
        *,
        filled: float = 1.0,
    ) -> None:
        """Fill a box with rounded corners.

        Args:
            corner: Upper left.
            size: Width and height.
            colour: Of the box.
            radius: Of the corners, pixels.
            filled: Share of its width that is filled, from the left.
        """
        x, y = round(corner[0]), round(corner[1])
        width, height = round(size[0]), round(size[1])
        shown = round(width * min(1.0, filled))
        if shown <= 0 or height <= 0:
            return
        if not radius:
            self.image.paste(colour, (x, y, x + shown, y + height))
            return
        mask = _rounded(width, height, radius)
        between = (x, y + radius, x + min(shown, width - radius), y + height - radius)
        if height < 4 * radius or shown < 2 * radius or width * height < _LARGE:
            self.image.paste(colour, (x, y), mask.crop((0, 0, shown, height)))
            return
        self.image.paste(colour, between)  # a plain box is faster than one through a mask
        for top, bottom in ((0, radius), (height - radius, height)):
            self.image.paste(colour, (x, y + top), mask.crop((0, top, shown, bottom)))
        if shown > width - radius:
            right = mask.crop((width - radius, radius, shown, height - radius))
            self.image.paste(colour, (x + width - radius, y + radius), right)

    def wash(self, corner: tuple[int, int], mask: Mask, colour: Colour, part: float = 1.0) -> None:
        """Lay colour over the picture, as much as a mask says.

        Args:
            corner: Upper left corner of the mask on the picture.
            mask: (height, width).
            colour: To lay.
            part: Share of what the mask says.
        """
        from PIL import Image

        if not mask.size:
            return
        if part < 1:
            mask = (mask * np.float32(part)).astype(np.uint8)
        self.image.paste(colour, corner, Image.fromarray(np.ascontiguousarray(mask)))

    def lay(self, corner: tuple[int, int], other: Sheet, until: int | None = None) -> None:
        """Put another picture onto this one.

        Args:
            corner: Where its upper left corner comes to lie.
            other: The picture.
            until: Its columns from the left that are put; None: all.
        """
        image = other.image
        if until is not None:
            image = image.crop((0, 0, max(0, min(until, image.width)), image.height))
        self.image.paste(image, corner)


@cache
def _font(size: int, bold: bool) -> ImageFont.FreeTypeFont:
    from PIL import ImageFont

    name = "Inter-SemiBold.ttf" if bold else "Inter-Regular.ttf"
    with as_file(files("dsp_gym.envs.watch") / "fonts" / name) as path:
        return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=8192)
def _letters(words: str, size: int, bold: bool) -> tuple[Image.Image, int, int, int]:
    """Draw a line of text: its mask, what to add to x and y of its begin, and its width."""
    from PIL import Image, ImageDraw

    font = _font(size, bold)
    width = font.getlength(words)
    mask = Image.new("L", (math.ceil(width) + 4, 2 * size), 0)  # room for letters that lean out
    ImageDraw.Draw(mask).text((2, size + size // 2), words, fill=255, font=font, anchor="ls")
    return mask, -2, -size - size // 2, round(width)


@lru_cache(maxsize=8192)
def text_width(words: str, size: int, bold: bool = False) -> int:
    """Measure the width of a line of text.

    Returns:
        Pixels.
    """
    need_pillow()
    return round(_font(size, bold).getlength(words))


@lru_cache(maxsize=2048)
def fitted(words: str, size: int, width: int, bold: bool = False) -> str:
    """Cut a text so that it fits.

    Args:
        words: One line.
        size: Pixels of the type.
        width: Pixels there are.
        bold: Whether in the heavier weight.

    Returns:
        The text, or its begin and an ellipsis.
    """
    if text_width(words, size, bold) <= width:
        return words
    kept = len(words)
    while kept and text_width(words[:kept] + "…", size, bold) > width:
        kept -= 1
    return words[:kept].rstrip() + "…"


@lru_cache(maxsize=2048)
def _rounded(width: int, height: int, radius: int) -> Image.Image:
    from PIL import Image, ImageDraw

    if not radius:
        return Image.new("L", (width, height), 255)
    large = Image.new("L", (_FINER * width, _FINER * height), 0)
    corner = (0, 0, _FINER * width - 1, _FINER * height - 1)
    ImageDraw.Draw(large).rounded_rectangle(corner, _FINER * radius, fill=255)
    return large.reduce(_FINER)


def curve_mask(size: tuple[int, int], paths: Sequence[Sequence[Point]], thick: float) -> Mask:
    """Draw lines through points, smooth.

    Args:
        size: Width and height of the mask, pixels.
        paths: Points of each line, pixels from the upper left corner.
        thick: Pixels.

    Returns:
        (height, width).
    """

    def line(drawing: ImageDraw.ImageDraw, points: list[Point]) -> None:
        drawing.line(points, fill=255, width=round(_FINER * thick), joint="curve")

    return _mask(size, paths, line)


def area_mask(size: tuple[int, int], paths: Sequence[Sequence[Point]]) -> Mask:
    """Fill the areas below lines, smooth.

    Args:
        size: Width and height of the mask, pixels.
        paths: Points of each line, from left to right, pixels from the upper left corner.

    Returns:
        (height, width).
    """

    def fill(drawing: ImageDraw.ImageDraw, points: list[Point]) -> None:
        bottom = _FINER * size[1]
        path = [(x, y + 1) for x, y in points]  # a polygon covers its edge
        drawing.polygon([(path[0][0], bottom), *path, (path[-1][0], bottom)], fill=255)

    return _mask(size, paths, fill)


def _mask(
    size: tuple[int, int],
    paths: Sequence[Sequence[Point]],
    draw: Callable[[ImageDraw.ImageDraw, list[Point]], None],
) -> Mask:
    from PIL import Image, ImageDraw

    large = Image.new("L", (_FINER * size[0], _FINER * size[1]), 0)
    drawing = ImageDraw.Draw(large)
    for path in paths:
        # Whole numbers, because Pillow cuts off digits: of negative ones towards the other side. A
        # line of even width lies half a pixel lower and to the right.
        draw(drawing, [(round(_FINER * x) - 1, round(_FINER * y) - 1) for x, y in path])
    return np.array(large.reduce(_FINER))
