"""The live page in a real browser: it shows the status, and updates without a reload."""

from __future__ import annotations

import json

import pytest

from dsp_gym.errors import FlinkError
from dsp_gym.pages import money
from tests.browser import BROWSER, CONTRASTS, Browser
from tests.unit.control.serve.conftest import session_of

pytestmark = [pytest.mark.slow, BROWSER]

ROWS = """[...document.querySelectorAll('#vertices tbody tr')].map(r => ({
  vertex: r.dataset.vertex, policy: r.dataset.policy,
  cells: [...r.cells].map(c => c.textContent)}))"""


GRAPH = """[...document.querySelectorAll('#graph g')].map(g => ({
  name: g.dataset.vertex, x: Number(g.getAttribute('transform').match(/[\\d.]+/)[0]),
  heat: g.querySelector('rect').style.getPropertyValue('--heat'),
  tasks: g.querySelector('.tasks').textContent, changes: g.classList.contains('changes')}))"""


FIGURES = """[...document.querySelectorAll('#figures div')].map(d =>
  [d.children[0].textContent, d.children[1].textContent])"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Half an hour of which the second half is a crowd that asks for more tasks."""
    with session_of(tmp_path_factory.mktemp("watched")) as session:
        session.run.run(steps=40)
        while not session.run.turn().changes:
            pass
        yield session


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


def shown(browser: Browser, decision: int) -> None:
    browser.wait_for(f"body[data-decision='{decision}']")


def test_every_vertex_shows_now_recommended_bounds_and_reason(browser, tmp_path):
    with session_of(tmp_path) as session:
        session.run.run(steps=20)
        browser.open(session.server.url)
        shown(browser, 20)
        document = session.board.document()
        rows = {(row["vertex"], row["policy"]): row["cells"] for row in browser.run(ROWS)}
        for vertex in document["vertices"]:
            for name, policy in vertex["policies"].items():
                cells = rows[vertex["name"], name]
                allowed = str(policy["target"])
                level = policy["target_memory_level"]
                assert cells[4] == (f"{allowed} @{level}" if level >= 0 else allowed)
                if name != "incumbent":
                    assert cells[5] == f"{policy['lower']}–{policy['upper']}"
                assert cells[7] == policy["reason"]
        for name, policy in document["policies"].items():
            row = f"document.querySelector('#policies tr[data-policy={name}]')"
            shown_cost = browser.run(f"{row}.cells[3].textContent")
            assert shown_cost == money(policy["cost_per_month"], policy["currency"])
            assert browser.run(f"{row}.cells[6].textContent") == policy["reason"]
        wish = browser.run("document.getElementById('wish').textContent")
        assert wish.startswith("ds2 ")
        reasons = {v["policies"]["ds2"]["sentence"] for v in document["vertices"]}
        assert wish.split(": ", 1)[1] in reasons
        assert browser.run("document.title").startswith("flink-wordcount")
        states = browser.run("[...document.querySelectorAll('#conditions li')].map(c => "
                             "[c.dataset.condition, c.dataset.status])")  # fmt: skip
        assert dict(states) == {c["type"]: c["status"] for c in document["conditions"]}
        assert browser.run("document.querySelectorAll('#decisions tbody tr').length") == 20
        assert "window 100 % full" in browser.run("document.getElementById('seen').textContent")
        assert browser.errors == []


def test_it_follows_the_loop_and_says_when_something_holds_it(browser, tmp_path, monkeypatch):
    with session_of(tmp_path) as session:
        session.run.run(steps=3)
        browser.open(session.server.url)
        shown(browser, 3)
        session.run.turn()
        shown(browser, 4)
        said = "Prometheus <b>did not answer</b> within 5 s"

        def refuses():
            raise FlinkError(said)

        monkeypatch.setattr(session.run.backend.collector, "snapshot", refuses)
        session.run.turn()
        shown(browser, 5)
        notice = browser.run("document.getElementById('notice').textContent")
        assert notice == f"Held: {said}"  # as text: what others say is no markup
        ready = "document.querySelector('[data-condition=Ready]')"
        assert browser.run(f"{ready}.dataset.status") == "False"
        assert browser.run(f"{ready}.className") == "bad"
        assert browser.errors == []


def test_a_failing_policy_shows_its_fallback(browser, tmp_path, monkeypatch):
    with session_of(tmp_path) as session:
        session.run.run(steps=3)

        def raises(snapshot):
            raise ZeroDivisionError("no rate")

        monkeypatch.setattr(session.run.policies[1].policy, "decide", raises)
        session.run.turn()
        browser.open(session.server.url)
        shown(browser, 4)
        row = "document.querySelector('#policies tr[data-policy=ds2]')"
        assert "no rate" in browser.run(f"{row}.cells[1].textContent")
        assert browser.run(f"{row}.cells[5].textContent") == "1"
        active = browser.run(
            "document.querySelector('[data-condition=FallbackActive]').dataset.status"
        )
        assert active == "True"


def test_a_process_that_is_gone_is_said_and_the_page_asks_on(browser, tmp_path):
    with session_of(tmp_path) as session:
        session.run.run(steps=2)
        browser.open(session.server.url)
        shown(browser, 2)
        session.server.close()
        browser.wait_for("body[data-connected=false]")
        assert "does not answer" in browser.run("document.getElementById('notice').textContent")
        rows = [policy for v in session.board.document()["vertices"] for policy in v["policies"]]
        assert {"ds2", "incumbent"} <= set(rows)
        left = browser.run("document.querySelectorAll('#vertices tbody tr').length")
        assert left == len(rows)


def test_of_several_jobs_all_are_listed_and_each_is_a_click_away(browser, tmp_path):
    with session_of(tmp_path) as session:
        session.run.run(steps=2)
        boards = session.server.boards
        boards.put("orders", session.board)
        boards.fail("views", "flink", "there is no job file 'views.yaml'")
        links = "[...document.querySelectorAll('#jobs a')].map(a => a.textContent)"
        browser.open(session.server.url)
        browser.wait_for("body[data-jobs='3']")
        assert browser.run(links) == ["views", "flink-wordcount", "orders"]  # trouble first
        assert browser.run("document.getElementById('one').hidden")
        browser.run("document.querySelectorAll('#jobs a')[0].click()")
        browser.wait_for("#notice:text-is(\"Not watched: there is no job file 'views.yaml'\")")
        assert browser.run("document.querySelectorAll('#vertices tbody tr').length") == 0
        browser.run("document.querySelector('#back a').click()")
        browser.wait_for("body[data-jobs='3']")
        browser.open(f"{session.server.url}/?job=flink-wordcount")
        shown(browser, 2)
        assert browser.run("document.getElementById('fleet').hidden")
        # A browser logs every 404, and a job that is not watched has no status.
        assert all("404" in error for error in browser.errors)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_graph_and_the_curves_fit_every_width(browser, watched, scheme):
    browser.page.emulate_media(color_scheme=scheme)
    for width in (360, 1400, 2560):
        browser.page.set_viewport_size({"width": width, "height": 900})
        browser.open(watched.server.url)
        browser.wait_for("#curves canvas")
        browser.wait_for("#figures div")
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert min(browser.run(CONTRASTS)) >= 4.5
        assert browser.run("document.querySelectorAll('#curves canvas').length") == 5
        browser.keep_picture(f"live-{width}-{scheme}")
        assert browser.errors == []


def test_the_graph_shows_busyness_and_what_is_recommended(browser, watched):
    browser.page.set_viewport_size({"width": 1400, "height": 900})
    browser.open(watched.server.url)
    browser.wait_for("#figures div")
    document, history = watched.board.document(), watched.board.curves()
    drawn = browser.run(GRAPH)
    assert [one["name"] for one in drawn] == ["source", "flatmap", "count"]
    assert [one["x"] for one in drawn] == sorted({one["x"] for one in drawn})  # a layer each
    for one, vertex in zip(drawn, document["vertices"], strict=True):
        assert float(one["heat"]) == pytest.approx(vertex["busy_ms_per_s"] / 1000, abs=0.005)
        target, now = vertex["policies"]["ds2"]["target"], vertex["current"]["parallelism"]
        assert one["tasks"].startswith(f"{now} → {target} " if target != now else f"{now} ")
        assert one["changes"] == (target != now)
    assert any(one["changes"] for one in drawn)
    assert browser.run("document.querySelectorAll('#graph .edge').length") == 2
    figures = dict(browser.run(FIGURES))
    spent = float(figures["cost today"].split(" USD since")[0])
    assert spent == pytest.approx(history["today"]["running"], rel=0.005)
    assert "SLO 2 s" in figures["latency p95"]


def test_nothing_is_fetched_from_elsewhere(browser, tmp_path):
    with session_of(tmp_path) as session:
        session.run.run(steps=1)
        browser.open(session.server.url)
        shown(browser, 1)
        fetched = browser.run("performance.getEntriesByType('resource').map(r => r.name)")
        assert fetched
        assert all(name.startswith(session.server.url) for name in fetched), json.dumps(fetched)
