"""Text of files, and where bytes stop being UTF-8."""

from __future__ import annotations

from pathlib import Path

from dsp_gym.errors import ConfigError, DspGymError

_NAMES = {
    list: "a list",
    tuple: "a list",
    dict: "a mapping",
    str: "text",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    type(None): "nothing",
}


def described(value: object) -> str:
    """What a document holds in place of what was expected, in the words of its writer.

    >>> described([1]), described("x"), described(None)
    ('a list', 'text', 'nothing')
    """
    return _NAMES.get(type(value), type(value).__name__)


def in_words(error: Exception) -> str:
    """Why something could not be read, without the words of the machine.

    Args:
        error: Of the system, or of a decoder that was given the whole.

    Returns:
        Words that follow "cannot be read: ".
    """
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeDecodeError):
        return _place(error, 1)
    return str(error)


def first_line(error: BaseException, most: int = 200) -> str:
    """Return the first line of an error's message, shortened; the error's class if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:most]


def decoded(
    data: bytes, file: str | Path, error: type[DspGymError] = ConfigError, *, first_line: int = 1
) -> str:
    """The text of bytes that should be UTF-8; a byte order mark at their start is left out.

    Args:
        data: Of a file, or of a line of one.
        file: The name used in errors.
        error: Raised where they are not UTF-8.
        first_line: Number of the first of these lines in the file.

    Returns:
        The text.

    Raises:
        DspGymError: Of the kind asked for, with the line and column of the first wrong byte.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        said = f"is {_place(wrong, first_line)}"
        raise error(said, file=file, remedy="Save it as UTF-8.") from None


def _place(wrong: UnicodeDecodeError, first_line: int) -> str:
    """Which byte is wrong, and where it is."""
    whole = wrong.object
    line = first_line + whole.count(b"\n", 0, wrong.start)
    begun = whole[whole.rfind(b"\n", 0, wrong.start) + 1 : wrong.start]
    column = len(begun.decode("utf-8", "replace")) + 1
    return f"not UTF-8 text: byte 0x{whole[wrong.start]:02x} at line {line}, column {column}"
