"""Keeps which tests changed a job on a real Flink, and how they went: `--record-releases`.

Such a test is marked with the ways in which it changes a job: `@acting("redeploy", "memory")`.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from dsp_gym.backends.flink.local.distribution import find_libraries
from dsp_gym.backends.flink.versions import WAYS, Way
from dsp_gym.studies.validation import releases


def acting(*ways: Way) -> pytest.MarkDecorator:
    """Mark a test that changes a job."""
    assert set(ways) <= set(WAYS), ways
    return pytest.mark.acting(*ways)


class Recorder:
    """A pytest plugin that writes the figures of the installed Flink when all tests have run."""

    def __init__(self) -> None:
        self.passed: dict[Way, dict[str, bool]] = defaultdict(dict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Tell the report the ways."""
        for mark in item.iter_markers("acting"):
            item.user_properties += [("acting", way) for way in mark.args]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome: of the call, and of what failed before and after it; no skipped one."""
        if report.skipped:
            return
        for name, way in report.user_properties:
            if name == "acting" and (report.when == "call" or report.failed):
                before = self.passed[way].get(report.nodeid, True)
                self.passed[way][report.nodeid] = before and report.passed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the figures."""
        acted = {
            way: releases.Acting(all(tests.values()), releases.today(), len(tests))
            for way, tests in self.passed.items()
        }
        if (
            acted
            and session.exitstatus != pytest.ExitCode.INTERRUPTED
            and not hasattr(session.config, "workerinput")
        ):
            file = releases.figures_file()
            releases.record_acting(find_libraries().version, acted, file)
