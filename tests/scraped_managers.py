"""A job on several TaskManagers, each of which a Prometheus scrapes at times of its own."""

from __future__ import annotations

import math

import numpy as np

from dsp_gym.metrics.samples import Samples
from tests.simulating import line

PER_S = 100.0
HOUR_S = 3600.0
SPEC = line()
ALWAYS = ((-500_000.0, math.inf),)


def managed(*managers, scrape_s=15.0, spread=True, tells_times=True, until_s=3 * HOUR_S):
    """One task of each vertex on every TaskManager.

    A TaskManager is given as the times in which its tasks are up, and those in which scrapes fail.
    """
    series = {}
    for task, (runs, unscraped) in enumerate(managers):
        offset_s = scrape_s * task / len(managers) if spread else 0.0
        scrapes = np.arange(scrape_s + offset_s, until_s, scrape_s)
        kept = [not any(a <= t < b for a, b in unscraped) for t in scrapes]
        since = np.full(len(scrapes), np.nan)
        for begin_s, end_s in runs:
            since = np.where((scrapes >= begin_s) & (scrapes < end_s), begin_s, since)
        times = scrapes[np.isfinite(since) & kept]
        up = (scrapes - since)[np.isfinite(since) & kept]
        for vertex in SPEC.vertices:
            series[vertex.name, task, "records_out_total"] = times, PER_S * up
            series[vertex.name, task, "records_in_total"] = times, PER_S * up
            for share, part in (("busy", 0.3), ("idle", 0.7), ("backpressured", 0.0)):
                if tells_times:
                    series[vertex.name, task, f"{share}_ms_total"] = times, 1000.0 * part * up
            if vertex.kind == "source":
                series[vertex.name, task, "pending_records"] = times, np.zeros(len(times))
    return Samples.of_series(series)


class Fetched:
    """Chunks of samples as `FlinkHistory` gives them."""

    job_name = "orders"
    remarks = ()

    def __init__(self, samples, chunk_s):
        self._samples, self._chunk_s = samples, chunk_s

    def graphs(self, since_s, until_s):
        pass

    def chunks(self, since_s, until_s, on_chunk):
        for begin_s in np.arange(0.0, until_s, self._chunk_s):
            yield Chunk(self._samples.between(begin_s, begin_s + self._chunk_s))


class Chunk:
    def __init__(self, samples):
        self._samples, self.rows = samples, len(samples)

    def samples(self):
        return self._samples
