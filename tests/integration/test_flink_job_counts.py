"""Results of the Java in flink-jobs against values by hand or by a second program.

Whole programs run over the first records of their sources inside one Java process, so that every
result is known; tests/integration/test_flink_jobs.py runs the same programs on a cluster.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsp_gym.backends.flink.local.distribution import find_java, find_libraries
from tests.real_flink import REAL_FLINK, SHORT_LIVED

pytestmark = [*REAL_FLINK, pytest.mark.validate]

ROOT = Path(__file__).resolve().parents[2]

RECORDS, RATE_PER_S, SEED, KEYS, GAP_S = 4600, 100.0, 7, 50, 1
PROGRAMS = ("q1", "q2", "q3", "q5", "q8", "q11", "wordcount")
MASK = 2**64 - 1

Row = tuple[int, int, int]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled jobs and the compiled test program."""
    folder = tmp_path_factory.mktemp("classes")
    folders = [ROOT / "flink-jobs" / name for name in ("src", "test")]
    sources = [str(path) for folder in folders for path in sorted(folder.rglob("*.java"))]
    flags = [
        "-J-XX:TieredStopAtLevel=1",
        "--release",
        "17",
        "-proc:none",
        "-Xlint:all,-path",
        "-Werror",
        "-d",
        str(folder),
    ]
    libraries = find_libraries().class_path
    javac = find_java().path.with_name("javac")
    compiler = str(javac) if javac.exists() else "javac"
    done = subprocess.run(
        [compiler, *flags, "-cp", libraries, *sources], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def java(classes: Path, main: str, *arguments: str) -> str:
    found = find_java()
    path = f"{classes}:{find_libraries().class_path}"
    command = [str(found.path), *found.flags, "-Xmx1g", "-cp", path, f"dspgym.flink.{main}"]
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **SHORT_LIVED},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def received(classes: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What reached the sink of each program, a line per record, in no order."""
    out = tmp_path_factory.mktemp("received")
    given = {
        "programs": ",".join(PROGRAMS), "records": RECORDS, "rate": RATE_PER_S, "seed": SEED,
        "keys": KEYS, "gap-s": GAP_S, "slot-sharing": "default", "out": out,
    }  # fmt: skip
    line = [part for key, value in given.items() for part in (f"--{key}", str(value))]
    java(classes, "BoundedRun", *line)
    return {name: (out / f"{name}.csv").read_text("utf-8").splitlines() for name in PROGRAMS}


def rows(lines: list[str]) -> Counter[Row]:
    return Counter((int(a), int(b), int(c)) for a, b, c in (line.split(",") for line in lines))


# A second program: Nexmark's stream and its queries, after flink-jobs/README.md.


def finished(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def bits(seed: int, position: int) -> int:
    """SplitMix64, without a sign."""
    golden = 0x9E3779B97F4A7C15
    return finished((finished((seed * golden) & MASK) + (position + 1) * golden) & MASK)


def below(bound: int, position: int) -> int:
    return (bits(SEED, position) >> 1) % bound


def times_ms(count: int, rate_per_s: float) -> list[int]:
    return [int((number + 1) / rate_per_s * 1000) for number in range(count)]


def any_person(last: int, draw: int) -> int:
    active = min(last + 1, KEYS)
    return last + 1 - active + below(active + 10, draw)


def persons() -> Iterator[Row]:
    """Id, 0 and state of residence."""
    for number in range(RECORDS // 4):
        yield 1000 + number, 0, below(6, number * 200)


def auctions() -> Iterator[Row]:
    """Id, seller and category."""
    for number in range(RECORDS * 3 // 4):
        epoch, place = divmod(number, 3)
        draw = (epoch * 50 + 1 + place) * 4
        hot = below(4, draw) > 0
        seller = epoch // 100 * 100 if hot else any_person(epoch, draw + 1)
        yield 1000 + number, 1000 + seller, 10 + below(5, draw + 2)


def bids() -> Iterator[Row]:
    """Auction, bidder and price."""
    for number in range(RECORDS):
        epoch, place = divmod(number, 46)
        draw = (epoch * 50 + 4 + place) * 4
        last = epoch * 3 + 2
        first = max(last - 100, 0)
        hot = below(2, draw) > 0
        auction = last // 100 * 100 if hot else first + below(last - first + 11, draw + 1)
        hot = below(4, draw + 2) > 0
        bidder = epoch // 100 * 100 + 1 if hot else any_person(epoch, draw + 3)
        share = (bits(SEED ^ 0x5DEECE66D, draw) >> 11) * 2.0**-53
        price = int(10 ** (6.0 * share) * 100 + 0.5)
        yield 1000 + auction, 1000 + bidder, price


def test_the_first_query_converts_the_price_of_every_bid(received):
    expected = Counter((auction, bidder, cents * 908 // 1000) for auction, bidder, cents in bids())
    assert rows(received["q1"]) == expected
    assert expected.total() == 4600


def test_the_second_query_keeps_the_bids_on_every_123rd_auction(received):
    expected = Counter(bid for bid in bids() if bid[0] % 123 == 0)
    assert rows(received["q2"]) == expected
    assert expected.total() == 11


def test_the_third_query_joins_auctions_of_a_category_with_sellers_of_three_states(received):
    state = {person: state for person, _, state in persons() if state < 3}
    expected = Counter(
        (auction, seller, state[seller])
        for auction, seller, category in auctions()
        if category == 10 and seller in state
    )
    assert rows(received["q3"]) == expected
    assert expected.total() == 235


def test_the_fifth_query_counts_bids_per_auction_in_each_of_five_windows(received):
    counts: Counter[tuple[int, int]] = Counter()
    for (auction, _, _), t_ms in zip(bids(), times_ms(RECORDS, RATE_PER_S), strict=True):
        latest = t_ms // 2000 * 2000
        counts.update((auction, start) for start in range(latest, latest - 10_000, -2000))
    expected = Counter((auction, 0, count) for (auction, _), count in counts.items())
    assert rows(received["q5"]) == expected
    assert expected.total() == 3096
    assert counts.total() == 5 * 4600


def test_the_eighth_query_finds_persons_who_opened_auctions_in_the_window_they_came_in(received):
    came: Counter[tuple[int, int]] = Counter()
    opened: Counter[tuple[int, int]] = Counter()
    for (person, _, _), t_ms in zip(persons(), times_ms(1150, 25.0), strict=True):
        came[person, t_ms // 10_000] += 1
    for (_, seller, _), t_ms in zip(auctions(), times_ms(3450, 75.0), strict=True):
        opened[seller, t_ms // 10_000] += 1
    expected = Counter((key[0], came[key], opened[key]) for key in came.keys() & opened.keys())
    assert rows(received["q8"]) == expected
    assert expected.total() == 570


def test_the_eleventh_query_counts_the_bids_of_each_session(received):
    of_bidder: defaultdict[int, list[int]] = defaultdict(list)
    for (_, bidder, _), t_ms in zip(bids(), times_ms(RECORDS, RATE_PER_S), strict=True):
        of_bidder[bidder].append(t_ms)
    expected: Counter[Row] = Counter()
    for bidder, times in of_bidder.items():
        count = 1
        for before, now in itertools.pairwise(times):
            if now - before > GAP_S * 1000:
                expected[bidder, 0, count] += 1
                count = 0
            count += 1
        expected[bidder, 0, count] += 1
    assert rows(received["q11"]) == expected
    assert expected.total() == 644
    assert sum(count * often for (_, _, count), often in expected.items()) == 4600


def test_every_word_of_every_sentence_is_counted_one_by_one(received):
    words = Counter(f"w{below(KEYS, position)}" for position in range(RECORDS * 10))
    expected = {f"({word},{i})" for word, count in words.items() for i in range(1, count + 1)}
    assert len(received["wordcount"]) == 46_000
    assert set(received["wordcount"]) == expected


def facts() -> dict[str, Any]:
    """What the second program is asked, and the answers; not computed when tests are collected."""
    often = Counter((bits(3, i) >> 1) % 6 for i in range(60_000))
    return {
        "mix bits": [bits(0, 0), bits(0, 1), bits(7, 41)],
        "mix below": [often[remainder] for remainder in range(6)],
        # 100/s for ten seconds, ten of nothing, then 50/s
        "load due": [0, 0, 999, 1000, 1000, 1500],
        "load half": [500, 750],
        "load times": [0.01, 10.0, 20.02],
        "load never": "Infinity",
        # The third of eight partitions has records 2, 10, 18, ...
        "partition first": [2, 0, 1, 1, 2],
        "partition later": [18, 18, 0, 1],
        "partition same epoch": [18, 18, 1],
        "partition other epoch": [18, 2, 3],
        "partition read": [2, 8, 18, 2, 2],
        "partitions read": [2, 18, 2],
        "buckets": [0, 7, 8, 15, 16, 16, 17, 63, 319],
        "bucket error ppm": [62_499],  # half a sixteenth, the worst of a bucket
        "latency": [100, 100, 1, 100],
        "latency median": 49.5,
    }


def test_loads_partitions_and_latencies_are_what_they_are_by_hand(classes):
    said = dict(line.split("=", 1) for line in java(classes, "Facts").splitlines())
    answers = facts()
    assert said.keys() == answers.keys()
    for question, answer in answers.items():
        if question == "mix bits":  # Java's numbers have a sign
            answer = [value - 2**64 if value >= 2**63 else value for value in answer]
        assert said[question] == str(answer), question
