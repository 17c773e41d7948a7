"""`manifest.json`: the document that says of which version a folder is, and what it holds.

Recordings, datasets and rollouts each derive theirs from `Manifest`, so that all three are read,
refused, migrated, hashed and written alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from dsp_gym.config.files import parse, write_atomic
from dsp_gym.config.model import ConfigModel
from dsp_gym.config.strict_json import parse_json
from dsp_gym.config.text import in_words
from dsp_gym.errors import SchemaError, StorageError
from dsp_gym.records.hashes import bytes_sha256

MANIFEST = "manifest.json"

Body = Mapping[str, Any]
"""A JSON object whose keys depend on the kind of what it describes: an event, a journal's entry."""


class Manifest(ConfigModel):
    """A manifest; a subclass adds its fields, `schema_` with the alias `schema` among them."""

    SCHEMA: ClassVar[str]
    """The version this release writes, such as `dsp-gym/recording/1`."""

    ABSENT: ClassVar[str]
    """What a folder without a manifest is not."""

    REMEDY: ClassVar[str]
    """The next step where the manifest is absent, damaged, or of another version."""

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Read the manifest of a folder.

        Returns:
            The manifest.

        Raises:
            StorageError: The folder has no manifest, or the manifest cannot be read.
            SchemaError: Its version is one that this release does not read, or a field is missing.
        """
        file = Path(folder) / MANIFEST
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise StorageError(cls.ABSENT, file=folder, remedy=cls.REMEDY) from None
        except (OSError, ValueError) as error:
            said = f"cannot be read: {in_words(error)}"
            raise StorageError(said, file=file, remedy=cls.REMEDY) from None
        return cls.parsed(text, file)

    @classmethod
    def parsed(cls, text: str, file: str | Path) -> Self:
        """Read a manifest's text.

        Args:
            text: JSON.
            file: where it stands, for errors.

        Returns:
            The manifest.

        Raises:
            StorageError: The text is no JSON.
            SchemaError: Its version is one that this release does not read, or a field is missing.
        """
        try:
            document = parse_json(text)
        except ValueError as error:
            said = f"cannot be read: {in_words(error)}"
            raise StorageError(said, file=file, remedy=cls.REMEDY) from None
        if not isinstance(document, dict):
            raise SchemaError(f"expected a JSON object, found {type(document).__name__}", file=file)
        if document.get("schema") != cls.SCHEMA:
            raise other_version(document.get("schema"), cls.SCHEMA, file, cls.REMEDY)
        return parse(cls, document, file)

    def text(self) -> str:
        """The file's content.

        Returns:
            JSON with sorted keys, one space of indent and a newline at the end.
        """
        document = self.model_dump(mode="json", by_alias=True)
        return json.dumps(document, indent=1, sort_keys=True) + "\n"

    def sha256(self) -> str:
        """Hash of the file that `write` writes.

        Returns:
            64 hexadecimal digits.
        """
        return bytes_sha256(self.text().encode())

    def write(self, folder: Path) -> Path:
        """Replace the manifest of a folder: a reader sees the old file or the new one, whole.

        Returns:
            The file.

        Raises:
            StorageError: The file cannot be written; the old one is unchanged.
        """
        return write_atomic(folder / MANIFEST, self.text())


def other_version(
    schema: object, reads: str, file: str | Path | None = None, remedy: str = ""
) -> SchemaError:
    """The error for a document of a version that this release does not read.

    Args:
        schema: the document's.
        reads: the schema that this release reads.
        file: that holds the document.
        remedy: the next step beside installing another release.

    Returns:
        The error, to be raised.
    """
    return SchemaError(
        "this version is not read here",
        file=file,
        key="schema",
        value=schema,
        remedy=f"This release of dsp-gym reads '{reads}'. {remedy}".rstrip(),
    )
