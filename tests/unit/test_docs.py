"""The documentation says what the code does."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from html.parser import HTMLParser
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
from tests.browser import BROWSER, Browser
from tests.guides import needs_edit
from tests.helming import checked

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
    def told(**keywords) -> set[str]:
        env = gymnasium.make("dsp_gym/Nexmark-Q1-v1", **keywords)
        env.reset(seed=0)
        return set(env.step(np.zeros(env.action_space.shape, np.int64))[4])

    rows = importlib.import_module("generator.scenarios").information()
    said = {key.strip("`"): listed for key, _, listed in rows}
    assert said.keys() == told(info_keys="all")
    assert {key for key, listed in said.items() if listed} == told(guardrails="default")
    assert {key for key, listed in said.items() if listed == "yes"} == told()


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


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    missing = [
        str(page.relative_to(DOCS))
        for page in DOCS.rglob("*.md")
        if str(page.relative_to(DOCS)) not in text
    ]
    assert not missing


def test_ids_are_written_with_their_module_so_that_worker_processes_find_them():
    texts = [ROOT / "README.md", *(DOCS / "recipes").glob("*.py"), *DOCS.rglob("*.ipynb")]
    texts += [page for page in DOCS.rglob("*.md") if "adr" not in page.parts]
    made = re.compile(r"""\bmake(?:_vec)?\([\s\\n",]*["']((?:dsp_gym:)?dsp_gym/[\w-]+)""")
    found = {file: made.findall(file.read_text("utf-8")) for file in texts}
    plain = [
        (file.name, name) for file, names in found.items() for name in names if ":" not in name
    ]
    assert not plain
    assert sum(map(len, found.values())) > 30


def test_the_page_has_the_words_of_gymnasium_where_a_worker_does_not_know_a_plain_id():
    code = "import gymnasium; gymnasium.make('dsp_gym/Nexmark-Q1-v1')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    words = "Namespace dsp_gym not found"
    assert words in done.stderr
    assert f"`{words}`" in (DOCS / "environments" / "index.md").read_text("utf-8")


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
    if block.startswith("# values.yaml"):
        parse(model_of("shadow"), checked(data)["config"], "docs")
    elif kind:
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


def test_every_option_of_a_command_that_they_show_is_there():
    found = dict(
        importlib.import_module("generator.commands").commands(typer.main.get_command(app), ())
    )
    wrong, seen = [], 0
    for page in [ROOT / "README.md", *WRITTEN]:
        if "adr" in page.parts or page.name == "history.md":
            continue
        text = page.read_text("utf-8").replace("\\\n", " ")
        shown = re.findall(r"```(?:ba)?sh\n(.*?)```", text, re.DOTALL)
        shown += re.findall(r"`([^`\n]+)`", text)
        for line in re.findall(r"\bdsp-gym ([a-z][^|;&#)\n]*)", "\n".join(shown)):
            words = line.split()
            command = found.get(" ".join(words[:2])) or found.get(words[0])
            if command is None:
                continue
            known = {
                option for one in command.params for option in (*one.opts, *one.secondary_opts)
            }
            for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", line):
                seen += 1
                if option not in known | {"--help", "--debug", "--version"}:
                    wrong.append((page.name, line, option))
    assert not wrong
    assert seen > 100


def built(config: Path, folder: Path) -> Path:
    """The site of a configuration; a warning fails it."""
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
    done = subprocess.run(
        [*command, "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site without what mkdocstrings puts on the pages of the Python API."""
    folder = tmp_path_factory.mktemp("site")
    config = folder / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: {DOCS}\nplugins: [search]\n", "utf-8"
    )
    return built(config, folder / "built")


@pytest.mark.slow
def test_the_site_builds_without_a_warning(site):
    page = (site / "index.html").read_text("utf-8")
    assert not re.search(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)', page)
    assert "fonts.googleapis.com" not in page


class Tables(HTMLParser):
    """Columns of the tables of a page, folded away or not."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.shown: list[int] = []
        self.folded: list[int] = []
        self._inside = 0
        self._into = self.shown
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._inside += tag == "details"
        if tag == "table":
            self._into = self.folded if self._inside else self.shown
            self._into.append(0)
        elif tag == "th":
            self._into[-1] += 1

    def handle_endtag(self, tag: str) -> None:
        self._inside -= tag == "details"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["core-v2", "core-v3"])
def test_a_page_of_costs_leads_with_four_columns_and_folds_its_wide_tables(site, page):
    found = Tables((site / page / "index.html").read_text("utf-8"))
    written = (DOCS / f"{page}.md").read_text("utf-8")
    assert found.shown
    assert max(found.shown) <= 5
    assert max(found.folded) >= 9
    assert len(found.folded) == written.count("<details")
    assert len(found.shown) + len(found.folded) == written.count("| --- |")


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted((DOCS / "api").glob("*.md")), ids=lambda page: page.stem)
def test_every_module_of_the_python_api_is_there(page):
    named = re.findall(r"^::: ([\w.]+)$", page.read_text("utf-8"), re.MULTILINE)
    assert named or page.stem == "index"
    for name in named:
        assert find_spec(name) is not None, name


@pytest.mark.validate
def test_the_site_builds_without_a_warning_as_make_docs_builds_it(tmp_path):
    site = built(ROOT / "mkdocs.yml", tmp_path / "site")
    rendered = (site / "api" / "loop" / "index.html").read_text("utf-8")
    assert 'id="dsp_gym.loop.decision.GuardedDecision"' in rendered


@pytest.mark.slow
@BROWSER
def test_pages_fit_any_width_and_fetch_nothing_from_elsewhere(site):
    asked: list[str] = []
    with Browser() as browser:
        browser.page.on("request", lambda request: asked.append(request.url))
        for page in ("index", "core-v2/index", "reference/config-experiments/index"):
            for width in (400, 1300):
                browser.page.set_viewport_size({"width": width, "height": 900})
                browser.open(f"file://{site}/{page}.html")
                browser.wait_for("article h1")
                browser.page.wait_for_load_state("load")  # without its style sheets a page is wider
                wide = browser.run("document.documentElement.scrollWidth")
                assert wide <= width, (page, width, wide)
    assert asked
    assert not [url for url in asked if not url.startswith(("file:", "about:", "data:", "blob:"))]
