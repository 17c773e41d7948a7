"""Justin (section 5, Figure 5): final configurations of DS2 and Justin on Nexmark, and savings."""

from __future__ import annotations

import pytest

from dsp_gym.studies.reproduce.justin import PUBLISHED, justin_nexmark


@pytest.fixture(scope="module")
def checks():
    return justin_nexmark()


@pytest.mark.parametrize("query", PUBLISHED)
def test_justin_section_5_figure_5(query, checks):
    found = [check for check in checks if check.name.startswith(f"justin-nexmark/{query}-")]
    assert len(found) >= 8
    failed = [check for check in found if check.failed]
    assert not failed, "\n".join(f"{c.name}: {c.published} against {c.ours}" for c in failed)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_justin_section_5_finals_do_not_hang_on_the_noise(seed):
    finals = [check for check in justin_nexmark(seed=seed) if check.name.endswith("-final")]
    assert len(finals) == 15
    failed = [check for check in finals if check.failed]
    assert not failed, "\n".join(f"{c.name}: {c.published} against {c.ours}" for c in failed)
