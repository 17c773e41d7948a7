"""Credentials in text, hidden before anyone reads it.

All text that leaves the process passes here: errors, status, metrics, journal, tags, output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "***"

_WORD_END = re.compile(r"[\s\"<>]")
_PARAMETER = re.compile(
    r"([?&][\w.%-]*(?:passw(?:or)?d|pwd|token|secret|signature|sig|credentials?|auth|key)=)"
    r"[^&#\s\"<>]+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(bearer|basic)(\s+)[A-Za-z0-9._~+/-]{12,}=*", re.IGNORECASE)

# Names of options that hold a secret end with one of these.
_SECRET_NAME = re.compile(
    r"account\.key\.[\w.-]{1,100}"  # fs.azure.account.key.NAME.blob.core.windows.net
    r"|(?:api|access|account|client|encryption|private|secret|shared|signing)[-_.]?key"
    r"|passw(?:or)?d|passphrase|pwd|secret|token|credentials?|signature|authorization|user\.info",
    re.IGNORECASE,
)
_HINTS = (
    "passw", "passphrase", "pwd", "secret", "token", "credential", "signature", "authorization",
    "user.info", "-key", "_key", ".key", "apikey", "accesskey", "accountkey", "clientkey",
    "encryptionkey", "privatekey", "sharedkey", "signingkey", "jdbc:oracle:", "eyj",
)  # fmt: skip
"""What any text with a secret beside its name holds, in lower case."""

_JWT_PART = re.compile(r"[A-Za-z0-9_-]*")
_LEAST_JWT = 10
_AFTER_NAME = re.compile(r"(?:\\*[\"'])?")
_SEPARATOR = re.compile(r"[ \t]*([:=])[ \t]*")
_NEXT_ARGUMENT = re.compile(r"[ \t]*,?[ \t]*")
_QUOTE = re.compile(r"(?<!\\)(\\*)([\"'\n])")
_BARE = re.compile(r"(?=[^\s\"])[^\s\"\\]*+(?:\\.[^\s\"\\]*+)*+")
_BARE_PARAMETER = re.compile(r"(?=[^\s\"&])[^\s\"\\&]*+(?:\\.[^\s\"\\&]*+)*+")
_NAME_WINDOW = 80  # longer names of options are not looked through
_MOST_BRACED = 256
_SCHEMES = ("apikey", "basic", "bearer", "digest", "negotiate", "token")
_AS_MAPPING = ("token", "signature", "credential", "credentials")
"""Names that stand before a colon in plain sentences, too."""


def redacted(text: str) -> str:
    """Hide the accounts of URLs, secret parameters and authorizations in a text.

    Args:
        text: Text of any length; JSON stays JSON.

    Returns:
        The text with *** in place of each; the same text where there is none.

    >>> redacted("http://me:secret@prometheus:9090/?token=abc did not answer")
    'http://***@prometheus:9090/?token=*** did not answer'
    """
    # Cheap tests first: nearly all text has no credentials, and patterns are slow.
    if _may_hold_account(text):
        text = _without_accounts(text)
    if _may_hold_parameter(text):
        text = _PARAMETER.sub(rf"\1{HIDDEN}", text)
    if _may_hold_authorization(text):
        text = _BEARER.sub(rf"\1\2{HIDDEN}", text)
    if _may_hold_named(text):
        text = _without_named(_without_jwt(_without_oracle_accounts(text)))
    return text


def is_plain(text: str) -> bool:
    """Whether a text surely holds no credentials; a matter of microseconds, whatever the text.

    Returns:
        False where `redacted` has to look; it may leave the text as it is.
    """
    return not (
        _may_hold_account(text)
        or _may_hold_parameter(text)
        or _may_hold_authorization(text)
        or _may_hold_named(text)
    )


def is_secret_name(name: str) -> bool:
    """Whether an option of that name holds a secret.

    >>> [is_secret_name(name) for name in ("db.password", "--s3.access-key", "token_file", "key")]
    [True, True, False, False]
    """
    return any(found.end() == len(name) for found in _SECRET_NAME.finditer(name))


def _may_hold_account(text: str) -> bool:
    return "@" in text and "://" in text


def _may_hold_parameter(text: str) -> bool:
    return "=" in text and ("?" in text or "&" in text)


def _may_hold_authorization(text: str) -> bool:
    return "earer" in text or "asic" in text


def _without_accounts(text: str) -> str:
    """Hide what stands in a word from :// to its last @.

    A password may contain an @: hiding too much beats hiding a part. Behind a question mark the @
    may stand in the middle of a password, so nothing of that word is shown. Every letter is looked
    at once. An expression would look at the rest of the word again from each ://.
    """
    parts: list[str] = []
    done = 0
    while (scheme := text.find("://", done)) >= 0:
        begin = scheme + len("://")
        end = _WORD_END.search(text, begin)
        end_of_word = len(text) if end is None else end.start()
        at = text.rfind("@", begin, end_of_word)
        if at < 0:
            parts.append(text[done:end_of_word])
        elif text.find("?", begin, at) >= 0:
            while text[end_of_word - 1] == "\\":  # of a quote behind the word
                end_of_word -= 1
            parts += [text[done:begin], HIDDEN]
        else:
            parts += [text[done:begin], HIDDEN, text[at:end_of_word]]
        done = end_of_word
    return "".join([*parts, text[done:]])


def _may_hold_named(text: str) -> bool:
    lower = text.lower()
    return any(hint in lower for hint in _HINTS)


def _without_oracle_accounts(text: str) -> str:
    """Hide user and password of `jdbc:oracle:thin:user/password@host`."""
    parts: list[str] = []
    done = 0
    while (found := text.find("jdbc:oracle:", done)) >= 0:
        word = _BARE.match(text, found)
        end = found + len("jdbc:oracle:") if word is None else word.end()
        begin, at = (
            text.find(":", found + len("jdbc:oracle:"), end) + 1,
            text.rfind("@", found, end),
        )
        if 0 < begin < at:
            parts += [text[done:begin], HIDDEN, text[at:end]]
        else:
            parts.append(text[done:end])
        done = end
    return "".join([*parts, text[done:]])


def _without_jwt(text: str) -> str:
    """Hide tokens of three parts in base64, the first of which is a JSON object."""
    parts: list[str] = []
    done = 0
    while (begin := text.find("eyJ", done)) >= 0:
        end, ends = begin, []
        for _ in range(3):
            found = _JWT_PART.match(text, end)
            assert found is not None
            ends.append(found.end())
            if text[found.end() : found.end() + 1] != ".":
                break
            end = found.end() + 1
        is_jwt = len(ends) > 1 and ends[0] - begin >= _LEAST_JWT and ends[1] - ends[0] > _LEAST_JWT
        parts += [text[done:begin], HIDDEN] if is_jwt else [text[done : ends[-1]]]
        done = ends[-1]
    return "".join([*parts, text[done:]])


def _without_named(text: str) -> str:
    """Hide what stands beside the name of a secret, as options and documents spell it.

    `password=x`, `password="x y"`, `"password": "x"`, `--password x`, and these inside a JSON text.
    Every letter is looked at once: a value is passed over, and a name has a bounded length.
    """
    parts: list[str] = []
    done = 0
    while (name := _SECRET_NAME.search(text, done)) is not None:
        span = _value_of(text, name)
        if span is None:
            parts.append(text[done : name.end()])
            done = name.end()
        else:
            parts += [text[done : span[0]], HIDDEN]
            done = span[1]
    return "".join([*parts, text[done:]])


def _value_of(text: str, name: re.Match[str]) -> tuple[int, int] | None:
    """Begin and end of the value beside a name; None without one."""
    quote = _AFTER_NAME.match(text, name.end())
    assert quote is not None
    separator = _SEPARATOR.match(text, quote.end())
    before = text[max(0, name.start() - _NAME_WINDOW) : name.start()]
    word = re.split(r"[\s\"'=,;(\[{]", before)[-1]
    if separator is None:
        if not word.startswith("--"):
            return None
        after = _NEXT_ARGUMENT.match(text, quote.end())
        assert after is not None
        return _value_at(text, after.end()) if after.end() > name.end() else None
    begin, is_quoted = separator.end(), quote.end() > name.end()
    if separator[1] == ":" and not is_quoted and not _is_key(name[0], word, before):
        return None
    opening = _QUOTE.match(text, begin)
    if opening is not None and opening[2] != "\n":
        return _quoted(text, opening)
    if is_quoted:
        return None  # a number, null or an object in JSON
    if name[0].lower() == "authorization":
        return _words(text, begin)
    return _bare(text, begin, is_parameter="?" in word or "&" in word)


def _is_key(name: str, word: str, before: str) -> bool:
    """Whether a name before a colon is a key or a header, and not the subject of a sentence."""
    if name.lower() not in _AS_MAPPING or word[-1:] in ("-", "_", "."):
        return True
    return before.rpartition("\n")[2].strip(" \t") == ""


def _value_at(text: str, begin: int) -> tuple[int, int] | None:
    """The value of `--name value`, and of `"--name", "value"`."""
    opening = _QUOTE.match(text, begin)
    if opening is not None:
        return None if opening[2] == "\n" else _quoted(text, opening)
    return None if text.startswith("--", begin) else _bare(text, begin)


def _quoted(text: str, opening: re.Match[str]) -> tuple[int, int]:
    """What stands between two quotes, which are escaped as often as the first one is.

    In a JSON text inside another one quotes bear 1, 3, 7... backslashes. Fewer of them end the
    outer text, and more belong to the value.
    """
    depth, mark, begin = len(opening[1]), opening[2], opening.end()
    for quote in _QUOTE.finditer(text, begin):
        if quote[2] == "'" != mark:
            continue  # JSON does not escape it
        escapes = len(quote[1]) % (2 * (depth + 1))
        if quote[2] == "\n" or escapes < depth:
            return begin, quote.start()
        if escapes == depth and quote[2] == mark:
            return begin, quote.end() - depth - 1
        if mark == "'" and quote[2] == '"' and escapes == depth and _ends_text(text, quote.end()):
            return begin, quote.start()
    return begin, len(text)


def _ends_text(text: str, after: int) -> bool:
    """Whether a quote ends a text of JSON, by what follows it."""
    return text[after : after + 1] in ("", ",", "}", "]", ":", " ", "\n")


def _bare(text: str, begin: int, *, is_parameter: bool = False) -> tuple[int, int] | None:
    """A value without quotes: a word, also over a quote inside it; `{...}` as SQL Server has it."""
    if text.startswith("{", begin):
        brace = text.find("}", begin, begin + _MOST_BRACED)
        if brace > 0 and "\n" not in text[begin:brace]:
            return begin, brace + 1
    pattern, end = _BARE_PARAMETER if is_parameter else _BARE, begin
    while (found := pattern.match(text, end)) is not None:
        end = found.end()
        if text[end : end + 1] != '"' or _ends_text(text, end + 1):
            break
        end += 1
    return None if end == begin else (begin, end)


def _words(text: str, begin: int) -> tuple[int, int] | None:
    """Scheme and credentials of a header."""
    scheme = _bare(text, begin)
    if scheme is None or text[scheme[1] : scheme[1] + 1] != " ":
        return scheme
    rest = _bare(text, scheme[1] + 1)
    if rest is None:
        return scheme
    return rest if text[begin : scheme[1]].lower() in _SCHEMES else (begin, rest[1])


def redacted_values(value: object) -> object:
    """Redact every text in a JSON-able value, and those whose key, or option before, is secret.

    Args:
        value: The value.

    Returns:
        A copy; keys, numbers and order stay.
    """
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if _is_hidden_by(key, item) else redacted_values(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            HIDDEN if _is_option(before) and _is_hidden_by(before, item) else redacted_values(item)
            for before, item in zip([None, *value], value, strict=False)
        ]
    return value


def _is_option(value: object) -> bool:
    return isinstance(value, str) and value.startswith("--")


def _is_hidden_by(name: object, value: object) -> bool:
    """Whether a text belongs to the name of a secret; an option that follows one does not."""
    return (
        isinstance(name, str) and isinstance(value, str) and value != ""
        and is_secret_name(name) and not _is_option(value)
    )  # fmt: skip
