"""All readers, by name."""

from __future__ import annotations

from tests.fuzz import of_files, of_policies, of_services
from tests.fuzz.readers import Reader

__all__ = ["READERS"]

READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (*of_files.READERS, *of_services.READERS, *of_policies.READERS)
}
