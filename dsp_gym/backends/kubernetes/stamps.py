"""The annotations of a resource that say which leader wrote it last, and for which decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

__all__ = ["DECISION", "EPOCH", "HOLDER", "OWN_ANNOTATIONS", "Stamp"]

EPOCH = "dsp-gym.io/epoch"
"""Annotation with the number of the leader that wrote last; each leader's is greater."""

HOLDER = "dsp-gym.io/holder"
"""Annotation with the name of that leader, as in the lease."""

DECISION = "dsp-gym.io/decision"
"""Annotation with the id of the decision that was written last, as in the journal."""

OWN_ANNOTATIONS = (EPOCH, HOLDER, DECISION)
"""All the metadata of a resource that is ever written."""

_DIGITS = 18
"""Longest epoch that is read; CEL's integers hold as many digits."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the annotations say."""

    epoch: int = 0  # 0: nobody has stamped the resource
    holder: str = ""
    decision: str | None = None
    trouble: str | None = None  # why the epoch cannot be read

    @classmethod
    def of(cls, annotations: Mapping[str, object]) -> Self:
        """Read the annotations leniently: `trouble` says what cannot be read.

        Returns:
            The stamp; epoch 0 without one.

        >>> Stamp.of({"dsp-gym.io/epoch": "7", "dsp-gym.io/holder": "pod-a"}).epoch
        7
        """
        text = str(annotations.get(EPOCH, "0"))
        decision = annotations.get(DECISION)
        rest = str(annotations.get(HOLDER, "")), None if decision is None else str(decision)
        if text.isascii() and text.isdecimal() and len(text) <= _DIGITS:
            return cls(int(text), *rest)
        return cls(0, *rest, f"its annotation {EPOCH} is no number: {text[:40]!r}")

    def annotations(self) -> dict[str, str]:
        """Write the stamp.

        Returns:
            Its annotations; that of the decision is left out, and so stays, where there is none.
        """
        written = {EPOCH: str(self.epoch), HOLDER: self.holder}
        return written if self.decision is None else {**written, DECISION: self.decision}
