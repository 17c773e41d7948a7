"""The live page of a fleet, of a job of many vertices, and of twins, in a real browser."""

from __future__ import annotations

import pytest

from dsp_gym.control.beside import write_twins
from dsp_gym.control.serve.history import Glance
from dsp_gym.control.serve.status import StatusBoard
from dsp_gym.control.verdict_summary import Block, SavingRange, VerdictSummary
from dsp_gym.whatif.follow import Follower
from dsp_gym.whatif.result import Trust
from tests.browser import BROWSER, CONTRASTS, Browser, looks
from tests.unit.control.serve.conftest import session_of

pytestmark = [pytest.mark.slow, BROWSER]

WIDTHS = (360, 768, 1400)
JOBS = 30
TWINS = """[...document.querySelectorAll('#twin-figures tbody tr')].map(r =>
  [r.dataset.policy, r.dataset.period, ...[...r.cells].slice(2).map(c => c.textContent)])"""


LINES = """[...document.querySelectorAll('#jobs tbody tr')].map(r =>
  ({job: r.dataset.job, late: r.classList.contains('late'),
    cells: [...r.cells].map(c => c.textContent)}))"""
NARROW = """[...document.querySelectorAll('#jobs tbody tr')].every(r =>
  r.getBoundingClientRect().right <= window.innerWidth)"""


class Told(StatusBoard):
    """The board of one job of a fleet, which shows given costs, lateness and verdict."""

    told: tuple[Glance, VerdictSummary | None]

    def glance(self) -> Glance:
        return self.told[0]

    def verdict(self) -> VerdictSummary | None:
        return self.told[1]


def told(number: int, t_s: float) -> tuple[Glance, VerdictSummary | None]:
    """Two of the jobs are late, every third could save for certain, every other third likely."""
    late = {4: t_s - 442.0, 21: t_s - 60.0}.get(number)
    glance = Glance("USD", 100.0 + number, late, 0.02, 2.0, 9.0 if late else 0.4, 0.0, 5e4)
    if number % 3 == 2:
        return glance, None
    certain, worth = number % 3 == 0, 10.0 + number
    blocks = () if certain else (Block(subject="days observed", found="2 days", needed="≥ 7 days"),)
    return glance, VerdictSummary(
        policy="planner",
        word="promote" if certain else "keep watching",
        sentence="The planner saves money and is as punctual.",
        days=9.0,
        cost_per_month=100.0 + number,
        late=0.02,
        late_then=0.01,
        saving=SavingRange(value=worth, low=worth - 5 if certain else -1.0, high=worth + 5),
        claimed_per_month=worth - 5 if certain else 0.0,
        blocks=blocks,
    )


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A job of 16 vertices, with twins beside it."""
    folder = tmp_path_factory.mktemp("watched")
    policies = [{"name": "ds2", "policy": "ds2"}, "flink-autoscaler", "incumbent"]
    given = {"job": "random-dag:7:16", "policies": policies, "guardrails": None}
    with session_of(folder, "diurnal", **given) as session:
        session.run.run(steps=20)
        twins = Follower(session.run.writer.folder, 2, Trust(lag=10, late=1, cost=10))
        assert twins.look(most=None)
        write_twins(session.run.writer.folder, twins.document())
        yield session


@pytest.fixture(scope="module")
def fleet(watched):
    """Thirty jobs, the watched one among them."""
    boards, t_s = watched.server.boards, float(watched.board.turn.snapshot.t_s[0])
    names = [f"team-{number % 4}-orders-{number:02}" for number in range(JOBS - 1)]
    for number, name in enumerate(names):
        board = Told(watched.run)
        board.decided(watched.board.turn)
        board.told = told(number, t_s)
        boards.put(name, board)
    yield watched
    for name in names:
        boards.drop(name)


def opened(browser: Browser, address: str, width: int, scheme: str) -> None:
    browser.page.emulate_media(color_scheme=scheme)
    browser.page.set_viewport_size({"width": width, "height": 900})
    browser.open(address)
    browser.wait_for("#curves canvas")


def fits(browser: Browser, width: int) -> None:
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert min(browser.run(CONTRASTS)) >= 4.5
    assert browser.errors == []


@pytest.mark.parametrize(("width", "scheme"), looks(*WIDTHS))
def test_twins_and_sixteen_vertices_fit(browser, watched, width, scheme):
    opened(browser, watched.server.url, width, scheme)
    browser.wait_for("#twin-curves canvas")
    assert browser.run("document.querySelectorAll('#graph g').length") == 16
    assert browser.run("document.querySelectorAll('#twin-curves canvas').length") == 4
    assert browser.run("document.getElementById('fleet').hidden")
    fits(browser, width)
    browser.keep_picture(f"twins-{width}-{scheme}")


def test_the_page_shows_the_figures_of_the_twins(browser, watched):
    opened(browser, watched.server.url, 1400, "light")
    browser.wait_for("#twin-figures tbody tr")
    rows = {(policy, period): cells for policy, period, *cells in browser.run(TWINS)}
    document = watched.board.twins()
    for period, said in document["periods"].items():
        assert set(said["policies"]) == {"incumbent", "ds2", "flink-autoscaler"}
        for policy, one in said["policies"].items():
            cost, saved, late, later, rescales = rows[policy, period]
            assert cost.endswith(" USD")
            assert saved.endswith(" USD")
            for text, key in ((cost, "cost"), (saved, "saved"), (late, "late_s"),
                              (later, "later_s"), (rescales, "rescales")):  # fmt: skip
                told = float(text.removesuffix(" USD").replace(",", ""))
                assert told == pytest.approx(one[key], rel=0.006)
    said = browser.run("document.getElementById('twins-said').textContent")
    assert "The model of the deployed configurations: " in said


def test_twins_of_a_wrong_model_show_why_and_nothing_else(browser, watched):
    folder, kept = watched.run.writer.folder, watched.board.twins()
    wrong = {**kept, "curves": None, "periods": {
        name: {**said, "policies": {}, "distrust": ["the model's cost is off by 40.0%"]}
        for name, said in kept["periods"].items()
    }}  # fmt: skip
    write_twins(folder, wrong)
    try:
        opened(browser, watched.server.url, 360, "light")
        browser.wait_for("#twins:not([hidden])")
        said = browser.run("document.getElementById('twins-said').textContent")
        assert "No figures since the start: the model's cost is off by 40.0%." in said
        assert browser.run(TWINS) == []
        assert browser.run("document.getElementById('twin-curves').hidden")
        fits(browser, 360)
    finally:
        write_twins(folder, kept)


@pytest.mark.parametrize(("width", "scheme"), looks(*WIDTHS))
def test_a_manager_sees_what_is_spent_saved_and_wrong(browser, fleet, width, scheme):
    browser.page.emulate_media(color_scheme=scheme)
    browser.page.set_viewport_size({"width": width, "height": 900})
    browser.open(fleet.server.url)
    browser.wait_for("#jobs tbody tr")
    lines = browser.run(LINES)
    assert len(lines) == JOBS
    # What is late now comes first, the longest first, and says since when.
    assert [line["job"][-2:] for line in lines[:2]] == ["04", "21"]
    assert [line["late"] for line in lines[:3]] == [True, True, False]
    assert lines[0]["cells"][1].startswith("late for 7 min")
    alarm = browser.run("document.getElementById('fleet-alarm').textContent")
    assert alarm.startswith("2 jobs are late; team-0-orders-04 has been late for 7 min")
    # Then the certain savings, the largest first, each with its policy and verdict.
    worth = [line["cells"][4] for line in lines[2:] if line["cells"][6] == "✓ promote"]
    assert worth[0].startswith("37 USD (32 to 42)")
    amounts = [float(text.split()[0]) for text in worth]
    assert amounts == sorted(amounts, reverse=True)
    judged = [line for line in lines if line["cells"][6] != "–" and line["job"].startswith("team")]
    assert {line["cells"][5] for line in judged} == {"planner"}
    lead = browser.run("document.getElementById('fleet-headline').textContent")
    assert " a month." in lead
    assert "can be saved for certain, on 10 jobs" in lead
    assert browser.run(NARROW)
    fits(browser, width)
    browser.keep_picture(f"fleet-live-{width}-{scheme}")


@pytest.mark.parametrize(("width", "scheme"), looks(*WIDTHS))
def test_the_page_of_a_job_leads_with_the_policy_of_the_verdict(browser, fleet, width, scheme):
    opened(browser, f"{fleet.server.url}/?job=team-3-orders-27", width, scheme)
    browser.wait_for("#verdict:not(:empty)")
    said = browser.run("document.getElementById('verdict').textContent")
    assert said == "The planner saves money and is as punctual."
    figures = browser.run("document.getElementById('figures').textContent")
    assert "37 USD" in figures
    fits(browser, width)
    browser.keep_picture(f"job-live-{width}-{scheme}")
