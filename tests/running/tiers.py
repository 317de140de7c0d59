"""Which tier each test belongs to, and with it which command runs it. A pytest plugin, loaded by `conftest.py`.

A test says its tier with a marker, which may stand on the test, on one of its parameters, or on the module:

    @pytest.mark.tier("full")                      # on the embedded broker, or without one; "long" on real Kafka
    @pytest.mark.tier(kafka="long")                # on real Kafka; on the embedded broker as usual
    pytest.param("before_flush", marks=pytest.mark.tier("full"))

What stands nearest to the test counts: its parameters, then the test, then the module; but no parameter brings a test
that says `long` into an earlier tier. A test that says nothing has the usual tier of its directory and broker
(`usual`), and must be quick: `tests/test_tiers.py` knows how long each takes. The tier becomes a marker of that name,
so `pytest -m "unit or default"` selects what `make test` runs.

`make test-full` has half an hour. So on real Kafka it has what needs Kafka's own answers most, and of each sweep over
parameters it has `POINTS_MAX` on each broker besides those of `make test`; what is left is `long`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIERS = ("unit", "default", "extended", "full", "long")
"""From the quickest on. `make test-unit` runs the first, `make test` the first two, CI the first three,
`make test-full` the first four, `make test-long` all of them."""
BROKERS = ("embedded", "kafka")
ON_KAFKA = {"extended": "long", "full": "long"}
"""The tier on real Kafka, where a test says one tier without a broker, and this isn't the same."""
MARKER = f"tier(name, embedded=name, kafka=name): which command runs it; names are {', '.join(TIERS)}"
POINTS_MAX = 2
"""With so many sets of its parameters a test is in the tier `full`, the first ones; with the others it is `long`."""
SERIES = frozenset(
    ROOT / "integration_tests/spark" / f"test_{name}.py" for name in ("by_map", "seeded", "seeded_repair")
)
"""Series of seeds on Spark, which take minutes each: all of them are `long`. `make test-seeds` and `make
test-seeds-of-proof` go on with them."""
USUAL_TIER = "usual tier"
"""A property of the reports of tests that don't say their tier."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A test with its tier. `broker` is the one that it runs on, empty where it needs neither; `said`: it has a marker
    for its tier."""

    test: str
    broker: str
    tier: str
    said: bool


COLLECTED = pytest.StashKey[list[Placed]]()
"""All tests that were collected, also those that `-m` leaves out."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """See pytest."""
    parser.getgroup("tiers").addoption("--tiers", type=Path, help="write the tier of each collected test to this file")


def pytest_configure(config: pytest.Config) -> None:
    """See pytest."""
    config.addinivalue_line("markers", MARKER)
    for tier in TIERS:
        config.addinivalue_line("markers", f"{tier}: the tier of a test, set by itself from `tier`")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its tier, before `-m` selects."""
    placed, points = [], Counter[tuple[str, str]]()
    for item in items:
        found = place(item)
        if found.tier == "full":
            point = item.nodeid.partition("[")[0], found.broker
            points[point] += 1
            found = replace(found, tier="long") if points[point] > POINTS_MAX else found
        placed.append(found)
        item.add_marker(found.tier)
        if not found.said:
            item.user_properties.append((USUAL_TIER, found.tier))
        if needs_spark(item):
            item.add_marker(pytest.mark.spark)
    config.stash[COLLECTED] = placed
    if config.option.tiers:
        config.option.tiers.write_text(json.dumps([asdict(each) for each in placed]))


def place(item: pytest.Item) -> Placed:
    """The tier of one test. Raises UsageError where a marker says what there isn't."""
    broker = broker_of(item)
    own = [_says(item, mark, broker) for mark in item.own_markers if mark.name == "tier"]
    if "long" in own or item.path in SERIES:
        return Placed(item.nodeid, broker, "long", said=True)
    parameters = [tier for mark in _of_parameters(item) if (tier := _says(item, mark, broker))]
    if parameters:
        return Placed(item.nodeid, broker, max(parameters, key=TIERS.index), said=True)
    for mark in item.iter_markers("tier"):
        if tier := _says(item, mark, broker):
            return Placed(item.nodeid, broker, tier, said=True)
    return Placed(item.nodeid, broker, usual(item.path, broker, needs_spark(item)), said=False)


def usual(path: Path, broker: str, spark: bool) -> str:
    """The tier of a test that doesn't say its own, by where it stands and by what it needs."""
    if not _below(path, "integration_tests"):
        return "extended" if spark else "unit"
    if spark:  # it works the same on both brokers, but for what the tests say that run on real Kafka
        return "long" if broker == "kafka" else "full"
    if broker != "kafka" or _below(path, "integration_tests/contract"):
        return "default"
    return "full" if _below(path, "integration_tests/planes") else "long"


@cache  # it is asked for each test, and a file has many
def _below(path: Path, directory: str) -> bool:
    return path.is_relative_to(ROOT / directory)


def broker_of(item: pytest.Item) -> str:
    """Which broker a test runs on: a member of `BROKERS`, or empty."""
    if item.get_closest_marker("kafka") is not None:
        return "kafka"
    parametrized = getattr(item, "callspec", None)
    return "" if parametrized is None else str(parametrized.params.get("kind", ""))


def needs_spark(item: pytest.Item) -> bool:
    """Whether a test starts Spark."""
    return "spark" in getattr(item, "fixturenames", ()) or _below(item.path, "integration_tests/spark")


def _of_parameters(item: pytest.Item) -> Iterator[pytest.Mark]:
    parametrized = getattr(item, "callspec", None)
    return (mark for mark in getattr(parametrized, "marks", ()) if getattr(mark, "name", "") == "tier")


def _says(item: pytest.Item, mark: pytest.Mark, broker: str) -> str | None:
    """What a marker says for this broker, if anything."""
    allowed = len(mark.args) <= 1 and set(mark.kwargs) <= set(BROKERS)
    if not allowed or not {*mark.args, *mark.kwargs.values()} <= set(TIERS) or not (mark.args or mark.kwargs):
        raise pytest.UsageError(f"{item.nodeid}: tier{mark.args or mark.kwargs}, but it is {MARKER}")
    if broker in mark.kwargs:
        return str(mark.kwargs[broker])
    found = str(mark.args[0]) if mark.args else None
    return ON_KAFKA.get(found, found) if found and broker == "kafka" else found
