"""TaskManagers are counted as if every subtask were placed one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dsp_gym.job.tables import OPERATOR, SOURCE
from dsp_gym.simulation.capacity import bin_pack, packing_room


def placed_one_by_one(kind, mib, slots, parallelism, level):
    """First fit decreasing, with free slots and memory of every TaskManager."""
    free = []
    for column in range(len(mib) - 1, -1, -1):
        for v in range(len(kind)):
            if kind[v] == SOURCE or level[v] + 1 != column:
                continue
            for _ in range(parallelism[v]):
                fits = (tm for tm in free if tm[0] >= 1 and tm[1] >= mib[column] - 1e-9)
                tm = next(fits, None)
                if tm is None:
                    tm = [slots, slots * mib[1]]
                    free.append(tm)
                tm[0] -= 1
                tm[1] -= mib[column]
    return len(free)


LEVELS = 3
vertices = st.lists(
    st.tuples(
        st.sampled_from([SOURCE, OPERATOR, OPERATOR]),
        st.integers(1, 40),
        st.integers(-1, LEVELS - 1),
    ),
    min_size=1,
    max_size=9,
)


@settings(max_examples=100)
@example([(OPERATOR, 40, 2), (OPERATOR, 7, 1), (OPERATOR, 3, 0), (OPERATOR, 11, -1)], 4, 120.0)
@example([(OPERATOR, 5, 2)], 1, 120.0)  # a subtask that no TaskManager has memory for
@given(vertices, st.integers(1, 5), st.sampled_from([0.1, 100.0 / 3.0, 120.0]))
def test_runs_of_equal_taskmanagers_count_as_single_ones_do(job, slots, managed_mib):
    kind, parallelism, level = (np.array(column, np.int64) for column in zip(*job, strict=True))
    mib = 316.2 + managed_mib * np.array([0.0, 1.0, 2.0, 4.0])
    runs = packing_room(len(job))
    counted = bin_pack(kind, mib, slots, LEVELS, 0, parallelism, level, runs)
    assert counted == placed_one_by_one(kind, mib, slots, parallelism, level)
