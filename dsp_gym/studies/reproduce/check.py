"""One published number beside ours."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Check", "skipped"]


@dataclass(frozen=True, slots=True)
class Check:
    """A published claim, what we get, and whether that is within the tolerance."""

    name: str  # study/what, such as justin-micro/read-sustained
    source: str  # paper and section, or data file
    claim: str  # the claim in words
    published: str | float
    ours: str | float | None
    tolerance: str
    passed: bool | None  # None: only reported, or skipped
    used_in_fit: bool  # a job file's parameters were fitted to it
    note: str | None = None  # why it was skipped, or what to know about it

    @property
    def failed(self) -> bool:
        """True where the claim is checked and not met."""
        return self.passed is False


def skipped(name: str, source: str, claim: str, published: str | float, why: str) -> Check:
    """A check that could not be made here.

    Returns:
        A check whose `passed` and `ours` are None, with the reason in its note.
    """
    return Check(name, source, claim, published, None, "–", None, False, f"skipped: {why}")
