"""Quality of raw rows: named checks, what becomes of every row, and the sum of it."""

from __future__ import annotations

from collections.abc import Mapping

ROW_CHECKS: Mapping[str, str] = {
    "identity": "a row says which run, vertex, subtask and metric it is of",
    "time": "a time is a number of seconds: not negative, and no milliseconds of a Unix clock",
    "metric": "a metric is one that dsp-gym knows",
    "unknown": "a value is there, and a number",
    "range": "a value is possible: not negative, finite, 0..1000 ms/s for time shares",
}
CELL_CHECKS: Mapping[str, str] = {
    "shares": "busy, backpressured and idle time of a subtask add up to 1000 ms/s",
    "monotone": "a counter falls when its task restarts, not alone for one sample",
    "jump": "a value does not for one sample grow many times above those around it",
}
REPORTED: Mapping[str, str] = {
    "gaps": "a reporting subtask keeps reporting",
    "flow": "what a vertex takes in is what the vertices before it gave out",
}
CHECKS: Mapping[str, str] = {**ROW_CHECKS, **CELL_CHECKS, **REPORTED}
"""Every check and what holds where it is passed, in the order they are made.

Rows that fail the first ones are kept out; `REPORTED` ones are listed, and remove nothing.
"""

OPTIONAL_CHECKS = ("range", *CELL_CHECKS)
"""Checks that can be left out; a row that fails one of the others has no place on the grid."""
