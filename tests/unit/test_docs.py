"""The documentation says what the code does."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import typer
import yaml

import dsp_gym  # noqa: F401 - registers the environments
from dsp_gym.cli import app
from dsp_gym.config.files import parse
from dsp_gym.config.kinds import model_of
from dsp_gym.loads.splits import LoadSet
from dsp_gym.studies.reproduce.registry import data_folder
from tests.browser import BROWSER, Browser
from tests.guides import needs_edit

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
WRITTEN = sorted(page for page in DOCS.rglob("*.md") if not {"reference", "api"} & set(page.parts))


@pytest.fixture(autouse=True, scope="module")
def _generate_is_found():
    """As when it is run: its folder comes first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield


def blocks(language: str):
    """Fenced blocks of the pages written by hand."""
    for page in WRITTEN:
        found = re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        for number, block in enumerate(found):
            yield pytest.param(block, id=f"{page.relative_to(DOCS)}-{number}")


def named_modules() -> list[str]:
    """Paths and modules of the project that pages, the README and configurations name."""
    texts = [ROOT / "README.md", ROOT / "CITATION.cff", *(ROOT / "configs").rglob("*.yaml")]
    texts += [page for page in WRITTEN if "adr" not in page.parts]
    packages = "(?:dsp_gym|agents|baselines|spark_pipelines)"
    found: set[str] = set()
    for file in texts:
        text = file.read_text("utf-8")
        found |= set(re.findall(rf"\b({packages}/[\w/]+\.py)\b", text))
        found |= set(re.findall(r"\b(tests/[\w/]+\.py|docs/[\w/-]+\.(?:md|py|yaml))\b", text))
        found |= set(re.findall(rf"python -m ({packages}[\w.]*\w)", text))
    return sorted(found - {"dsp_gym/_configs"})


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return importlib.import_module("generate").pages()


def test_reference_pages_are_what_the_code_says(pages):
    stale = [name for name, text in pages.items() if (DOCS / name).read_text("utf-8") != text]
    assert not stale, f"run python docs/generate.py --tables-only and commit {stale}"


def test_no_generated_page_is_left_over(pages):
    marked = {
        str(page.relative_to(DOCS))
        for page in DOCS.rglob("*.md")
        if page.read_text("utf-8").startswith("<!-- Written by docs/generate.py")
    }
    assert marked - {"reproduction.md"} == set(pages)
    assert {str(page.relative_to(DOCS)) for page in (DOCS / "reference").glob("*.md")} <= marked


def test_the_information_of_a_step_is_what_the_pages_say():
    env = gymnasium.make("dsp_gym/Nexmark-Q1-v1")
    env.reset(seed=0)
    *_, info = env.step(np.zeros(env.action_space.shape, np.int64))
    said = importlib.import_module("generator.scenarios").INFO
    assert {key for keys in said for key in re.findall(r"`(\w+)`", keys)} == set(info)


def test_every_registered_environment_has_a_page(pages):
    ids = [name for name in gymnasium.registry if name.startswith("dsp_gym/")]
    titles = {re.search(r"^# (.*)$", text, re.MULTILINE)[1] for text in pages.values()}
    assert ids
    assert set(ids) <= titles


def test_the_architecture_picture_is_what_its_text_says():
    drawn = importlib.import_module("architecture").pictures()
    assert set(drawn) == {"architecture-light.svg", "architecture-dark.svg"}
    stale = [name for name, svg in drawn.items() if (DOCS / name).read_text("utf-8") != svg]
    assert not stale, f"run python docs/architecture.py and commit {stale}"


@pytest.mark.parametrize("name", named_modules())
def test_every_path_and_module_they_name_is_there(name):
    if "/" in name:
        assert (ROOT / name).exists()
    else:
        assert find_spec(name) is not None


def test_every_module_that_the_changelog_says_moved_is_where_it_says():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    moved = text.partition("### Moved")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*) \| `([\w.*]+)` \|$", moved, re.MULTILINE)
    assert len(rows) > 30
    for old, new in rows:
        names = re.findall(r"`(\w+)`", old.partition(": ")[2])
        for module in [f"{new}.{name}" for name in names] or [new.removesuffix(".*")]:
            assert find_spec(module) is not None, module
        gone = old.partition("`: ")[0].strip("`").removesuffix(".*")
        for module in [f"{gone}.{name}" for name in names]:
            file = ROOT / f"{module.replace('.', '/')}.py"
            assert not file.exists() or "raise refusal(" in file.read_text(), module


@pytest.mark.slow
def test_published_numbers_are_what_reproduce_says():
    folder = data_folder()
    if folder is None:
        pytest.skip("needs the folder of measured data: DSP_GYM_DATA")
    # The study of intervals takes longer than all others: `make validate` recomputes it.
    written = {
        name: row
        for name, row in checks((DOCS / "reproduction.md").read_text("utf-8")).items()
        if not name.startswith("intervals/")
    }
    recomputed = importlib.import_module("generator.published").reproduction
    now = checks(recomputed(folder, left_out={"intervals"}))
    again = "run python docs/generate.py and commit docs/reproduction.md"
    assert list(written) == list(now), again
    for name, row in now.items():
        claim, published, ours, *rest, _note = row
        claim_there, published_there, ours_there, *rest_there, _note = written[name]
        assert (claim_there, published_there, rest_there) == (claim, published, rest), again
        assert agree(name, ours_there, ours), f"{name}: {ours_there} became {ours}; {again}"


NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])")
ROUNDED_REL = 0.02
"""Largest relative difference of a figure between processors, whose libraries round otherwise."""
PLANNED = {"streambed-tables/*-slots": (0.02, 1)}  # rounded up to whole slots
"""Rows of slots that StreamBed's planner found: largest differences, relative and absolute.

Its least squares and its Gaussian process end in other last digits where BLAS has other kernels
(Haswell's and Prescott's, for instance). So it tries more budgets or fewer, and its plans differ
by a slot or two.
"""

REPLAYED = "streambed-tables/*-replay"
"""Rows that count the budgets it tried, such as `14 of 15, 0 of 15`: their shares agree."""

SHARE = re.compile(r"(\d+) of (\d+)")
SHARE_ABS = 0.1
"""Largest difference of a share of the budgets tried."""


def agree(name: str, there: str, here: str) -> bool:
    """Whether a cell of the page is what was computed here, perhaps on another processor.

    A single number agrees within `ROUNDED_REL`, the numbers of a row of `PLANNED` within its
    tolerance, the shares of `REPLAYED` within `SHARE_ABS`. Everything else is equal, text and
    letters beside the numbers in particular.
    """
    if there == here:
        return True
    if fnmatch(name, REPLAYED) and SHARE.sub("#", there) == SHARE.sub("#", here):
        shares = [[int(a) / int(b) for a, b in SHARE.findall(cell)] for cell in (there, here)]
        return shares[0] == pytest.approx(shares[1], abs=SHARE_ABS)
    allowed = next((limits for row, limits in PLANNED.items() if fnmatch(name, row)), None)
    if allowed is None and NUMBER.fullmatch(there) and NUMBER.fullmatch(here):
        allowed = (ROUNDED_REL, 0)
    if allowed is None or NUMBER.sub("#", there) != NUMBER.sub("#", here):
        return False
    rel, most = allowed
    pairs = zip(NUMBER.findall(there), NUMBER.findall(here), strict=True)
    return all(float(a) == pytest.approx(float(b), rel=rel, abs=most) for a, b in pairs)


@pytest.mark.parametrize(
    ("name", "there", "here", "same"),
    [
        ("streambed-tables/q1-slots", "179 179 179 178", "179 179 178 178", True),
        ("streambed-tables/q5-slots", "- - 1637 1586", "- - 1630 1587", True),
        ("streambed-tables/q1-slots", "179 179 179 178", "179 179 179", False),
        ("streambed-tables/q1-slots", "179 179 179 178", "179 179 179 -", False),
        ("streambed-tables/q1-slots", "179 179 179 178", "179 179 184 178", False),
        ("streambed-tables/q1-slots", "- - 1637 1586", "not reached", False),
        ("streambed-tables/q1-replay", "9 of 9, 0 of 9", "11 of 11, 0 of 11", True),
        ("streambed-tables/q11-replay", "16 of 16, 0 of 16", "13 of 13, 0 of 13", True),
        ("streambed-tables/q2-replay", "11 of 11, 0 of 11", "14 of 15, 0 of 15", True),
        ("streambed-tables/q2-replay", "11 of 11, 0 of 11", "14 of 15", False),
        ("streambed-tables/q2-replay", "11 of 11, 0 of 11", "12 of 15, 0 of 15", False),
        ("streambed-tables/q11-replay", "16 of 16, 0 of 16", "16 of 16, 3 of 16", False),
        ("streambed-tables/q11-replay", "16 of 16, 0 of 16", "9 of 16, 0 of 16", False),
        ("justin-nexmark/q1-steps", "9 of 9, 0 of 9", "9 of 10, 0 of 10", False),
        ("streambed/mst-median", "0.0375", "0.0376", True),
        ("streambed/mst-median", "0.0375", "0.039", False),
        ("streambed/mst-median", "-0.0375", "0.0375", False),
        ("justin-nexmark/q1-justin-artifact-levels", "0 -1 -1", "0 0 -1", False),
        ("justin-nexmark/q1-ds2-justin-final", "(7; 158)", "(7; 159)", False),
        ("ds2-word-count/flink-phase-1", "(19, 11)", "(19, 11) in 1 step", False),
    ],
)
def test_only_the_digits_a_processor_decides_may_differ(name, there, here, same):
    assert agree(name, there, here) is same


def checks(page: str) -> dict[str, list[str]]:
    """Cells by check, of the table of published numbers."""
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", page, re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in rows}


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    missing = [
        str(page.relative_to(DOCS))
        for page in DOCS.rglob("*.md")
        if str(page.relative_to(DOCS)) not in text
    ]
    assert not missing


@pytest.mark.parametrize("block", list(blocks("python")))
def test_python_examples_run(block):
    code = compile(block, "docs", "exec")
    if needs_edit(block):
        return  # tests/integration/test_guides.py runs it on an edited copy
    if block.startswith("# needs a "):
        return  # a cluster, a dataset: tests/integration does the same where there is one
    exec(code, {"__name__": "docs_example"})


@pytest.mark.parametrize("block", list(blocks("yaml")))
def test_yaml_examples_are_accepted(block):
    if block.startswith("# needs "):
        return  # a package of the reader's: the guide's own test installs it
    kind = re.match(r"# kind: (\w+)\n", block)
    data = yaml.safe_load(block)
    if kind:
        parse(model_of(kind[1]), data, "docs")
    else:
        parse(LoadSet, data["loads"], "docs")


def test_every_command_they_name_is_there():
    found = importlib.import_module("generator.commands").commands
    known = {name for name, _ in found(typer.main.get_command(app), ())}
    for page in WRITTEN:
        text = page.read_text("utf-8")
        shown = re.findall(r"```sh\n(.*?)```", text, re.DOTALL) + re.findall(r"`([^`\n]+)`", text)
        for first, second in re.findall(r"\bdsp-gym ([a-z-]+)(?: ([a-z-]+))?", "\n".join(shown)):
            assert known & {first, f"{first} {second}"}, (page.name, first, second)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built as `make docs` builds it; a warning fails it."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_without_a_warning(site):
    page = (site / "index.html").read_text("utf-8")
    assert not re.search(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)', page)
    assert "fonts.googleapis.com" not in page
    rendered = (site / "api" / "loop" / "index.html").read_text("utf-8")
    assert 'id="dsp_gym.loop.decision.GuardedDecision"' in rendered


@pytest.mark.slow
@BROWSER
def test_pages_fit_any_width_and_fetch_nothing_from_elsewhere(site):
    asked: list[str] = []
    with Browser() as browser:
        browser.page.on("request", lambda request: asked.append(request.url))
        for page in ("index", "leaderboard/index", "reference/config-experiments/index"):
            for width in (400, 1300):
                browser.page.set_viewport_size({"width": width, "height": 900})
                browser.open(f"file://{site}/{page}.html")
                browser.wait_for("article h1")
                wide = browser.run("document.documentElement.scrollWidth")
                assert wide <= width, (page, width, wide)
    assert asked
    assert not [url for url in asked if not url.startswith(("file:", "about:", "data:", "blob:"))]
