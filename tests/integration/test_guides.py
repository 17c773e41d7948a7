"""Each guide that changes the package: its edits are made on a copy, and its programs run there."""

from __future__ import annotations

import pytest

from tests.guides import GUIDES, edited_copy, edits, programs, run

pytestmark = pytest.mark.slow

STALE: dict[str, tuple[str, ...]] = {}
"""Compiled packages that call into a file which the guide edits."""


def guides() -> list[str]:
    return sorted(page.name for page in GUIDES.glob("*.md") if programs(page.name))


@pytest.mark.parametrize("guide", guides())
def test_the_guide_works_as_written(guide, tmp_path):
    copy = edited_copy(guide, tmp_path, STALE.get(guide, ()))
    for program in programs(guide):
        run(program, copy)


@pytest.mark.parametrize("guide", ["add-a-reward-term.md"])
def test_one_file_is_enough(guide):
    assert len({file for file, _, _ in edits(guide)}) == 1


def test_every_guide_with_edits_is_run():
    with_edits = {page.name for page in GUIDES.glob("*.md") if edits(page.name)}
    assert with_edits == set(guides())
