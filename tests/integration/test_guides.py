"""Each guide that changes the package: its edits on a copy, and its programs."""

from __future__ import annotations

import pytest

from tests.guides import GUIDES, ROOT, edited_copy, edits, files, programs, run

pytestmark = pytest.mark.slow


def guides() -> list[str]:
    return sorted(page.name for page in GUIDES.glob("*.md") if programs(page.name))


@pytest.mark.parametrize("guide", guides())
def test_the_guide_works_as_written(guide, tmp_path):
    copy = edited_copy(guide, tmp_path)
    for program in programs(guide):
        run(program, copy)


@pytest.mark.parametrize(
    ("guide", "most"),
    [
        ("add-an-observation-feature.md", 1),
        ("add-a-reward-term.md", 1),
        ("add-an-algorithm.md", 1),
        ("add-a-physical-effect.md", 4),
    ],
)
def test_so_many_files_are_enough(guide, most):
    assert 0 < len(files(guide)) <= most


def test_the_guide_for_a_source_shows_the_source_that_a_build_is_tested_with():
    (text,) = (text for _, _, text in edits("add-a-spark-source.md"))
    assert text == (ROOT / "tests" / "json_lines.py").read_text("utf-8")


def test_every_guide_with_edits_is_run():
    with_edits = {page.name for page in GUIDES.glob("*.md") if files(page.name)}
    assert with_edits == set(guides())
