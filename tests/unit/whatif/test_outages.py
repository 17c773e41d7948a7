"""A verdict rests on the outages of the job's own rescales, whatever its file assumed before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dsp_gym.metrics.samples import Samples
from dsp_gym.whatif.model import fitted
from dsp_gym.whatif.policies import named_entrants
from dsp_gym.whatif.prometheus import fetched_history
from dsp_gym.whatif.replay import HistoryReplay
from tests.simulating import line
from tests.unit.whatif.test_prometheus import Fetched

REAL_S = (3.0, 4.0, 5.0)
SCRAPE_S, PART_S, AHEAD_S = 30.0, 900.0, 150.0
QUIET, BUSY = 600.0, 1700.0  # records/s; one task of the map carries 1,000
ASSUMED = [(56.0, 76.0, 93.0), (6.0, 10.0, 20.0), (200.0, 300.0, 400.0)]


def job(outage_s):
    return line(rescale={"mode": "redeploy", "outage_s": outage_s})


def scraped():
    """A job that is rescaled some minutes after its load has changed, and then catches up."""
    begins = PART_S * np.arange(len(REAL_S) + 1)
    ups = begins + np.array([0.0, *REAL_S])
    stops = np.append(begins[1:], PART_S * len(begins))
    changes = np.append(begins - AHEAD_S, stops[-1])
    arrivals = np.cumsum([0.0, *(np.diff(changes) * np.resize([QUIET, BUSY], len(begins)))])
    rows, done = {}, 0.0
    for number, (up_s, stop_s) in enumerate(zip(ups, stops, strict=True)):
        capacity = 1000.0 * (1 + number % 2)
        for vertex, several in {"source": 4, "map": 1 + number % 2, "sink": 1}.items():
            for task in range(several):
                times = 7.0 + SCRAPE_S * task / 4 + np.arange(0.0, stops[-1], SCRAPE_S)
                times = times[(times > up_s) & (times <= stop_s)]
                came = np.interp(times, changes, arrivals) - done
                took = np.minimum(came, capacity * (times - up_s))
                told = {"records_out_total": took / several, "records_in_total": took / several}
                for share in ("busy", "idle", "backpressured"):
                    told[f"{share}_ms_total"] = 1000.0 / 3.0 * (times - up_s)
                if vertex == "source":
                    told["pending_records"] = (came - took) / several
                for metric, values in told.items():
                    rows.setdefault((vertex, task, metric), []).append((times, values))
        left = float(np.interp(stop_s, changes, arrivals)) - done
        done += min(left, capacity * (stop_s - up_s))
    series = {
        key: tuple(np.concatenate(one) for one in zip(*parts, strict=True))
        for key, parts in rows.items()
    }
    return Samples.of_series(series), float(stops[-1])


def watched(outage_s):
    samples, end_s = scraped()
    fetched = Fetched(samples, 10_000.0)
    found = fetched_history(fetched, job(outage_s), end_s / 86_400, 60, now_s=end_s)
    return replace(found, parts=())  # the loads are round numbers: nothing to fit


def late_share(history):
    """Of DS2, which rescales with the load."""
    replay = HistoryReplay(named_entrants(("ds2",), None), seeds=4)
    replay.follow(fitted(history), final=True)
    run = replay.runs["ds2"]
    return float(run.of("slo_s").sum() / run.of("seconds").sum())


@pytest.fixture(scope="module")
def real():
    return late_share(replace(watched(REAL_S), drawn_outages_s=()))


@pytest.mark.parametrize("assumed", ASSUMED)
def test_three_seen_rescales_correct_any_assumed_outage(assumed, real):
    history = watched(assumed)
    assert len(history.drawn_outages_s) == len(REAL_S)
    assert fitted(history).spec.rescale.outage_s == pytest.approx(REAL_S, abs=1.5)
    assert late_share(history) == pytest.approx(real, abs=0.02)


def test_without_them_the_assumption_is_off_by_more(real):
    assert late_share(replace(watched(ASSUMED[0]), drawn_outages_s=())) > real + 0.1
