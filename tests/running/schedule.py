"""Which worker of pytest-xdist runs which tests, and in what order. A pytest plugin, loaded by `conftest.py`.

Brokers and Spark sessions live as long as a worker has tests for them, and take their time to start. So a worker stays
with one kind of test: on real Kafka, on Spark, on the embedded broker, or without any. Of each kind the longest unit of
work comes first, so that no long one comes last; how long each test takes is known from `tests/durations.json`. A
worker whose kind is done helps where most is left, if that is worth a start.

A unit of work is a file, for what its tests share, or a part of a long file whose tests share nothing but brokers or a
Spark session.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.running import durations
from tests.running.tiers import COLLECTED, ROOT

START_S = {"kafka": 30.0, "spark": 15.0, "frames": 10.0, "embedded": 5.0, "unit": 0.0}
"""The kinds of tests, and what a worker that begins with one of them pays: containers, a Spark session, brokers."""
UNIT_S_MAX = {"kafka": 25.0, "spark": 60.0, "frames": 60.0, "embedded": 25.0, "unit": 25.0}
"""Longer files are cut into units of about this length, by kind: one on Spark makes a session of its own."""
KAFKA_ID = re.compile(r"[\[-]kafka[\]-]")
KAFKA_MODULE = re.compile(r"^pytestmark = .*\bmark\.kafka\b", re.MULTILINE)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Schedule by kind where `--dist loadfile` was asked for."""
    return KindScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish(session: pytest.Session) -> None:
    """The schedule knows tests by their ids alone: their kind must follow from them."""
    brokers = {placed.test: placed.broker for placed in session.config.stash.get(COLLECTED, [])}
    wrong = [test for test, broker in brokers.items() if _on_kafka(test) is not (broker == "kafka")]
    if wrong:
        raise pytest.UsageError(f"not seen by its id whether it runs on real Kafka: {wrong[:5]}")


def kind_of(test: str) -> str:
    """A member of `START_S`, from a test's id."""
    path = test.partition("::")[0]
    if path.startswith("integration_tests/spark/"):
        return "spark"
    if path.startswith("tests/replicator/spark/"):
        return "frames"
    if _on_kafka(test):
        return "kafka"
    return "embedded" if path.startswith("integration_tests/") else "unit"


def _on_kafka(test: str) -> bool:
    path = test.partition("::")[0]
    return path.startswith("integration_tests/") and (KAFKA_ID.search(test) is not None or _all_on_kafka(path))


@cache
def _all_on_kafka(path: str) -> bool:
    return KAFKA_MODULE.search((ROOT / path).read_text()) is not None


@cache
def _cuttable(path: str) -> bool:
    return 'scope="module"' not in (ROOT / path).read_text()


def units_of(tests: Sequence[str], seconds: Mapping[str, float]) -> dict[str, list[str]]:
    """Units of work by their names, in the order of `tests`."""
    units: dict[str, list[str]] = {}
    numbers, filled = Counter[str](), Counter[str]()
    for test in tests:
        path = test.partition("::")[0]
        kind = kind_of(test)
        name = f"{path} {kind}"
        if _cuttable(path):
            if filled[name] >= UNIT_S_MAX[kind]:
                numbers[name] += 1
                filled[name] = 0
            filled[name] += seconds[test]  # type: ignore[assignment]
        units.setdefault(f"{name} {numbers[name]}", []).append(test)
    return units


class KindScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """`LoadScopeScheduling` with units of work that have a kind and a length."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._units: dict[str, str] = {}
        self._left_s: dict[str, float] = {}
        self._kinds: dict[WorkerController, str] = {}

    def schedule(self) -> None:
        """See `LoadScopeScheduling`: makes the units of work when all workers have collected."""
        if self.collection is None and self._check_nodes_have_same_collection():
            tests = next(iter(self.registered_collections.values()))
            seconds = durations.expected(tests)
            units = units_of(tests, seconds)
            self._units = {test: name for name, found in units.items() for test in found}
            self._left_s = {name: sum(seconds[test] for test in found) for name, found in units.items()}
        super().schedule()

    def remove_node(self, node: WorkerController) -> str | None:
        """See `LoadScopeScheduling`. A worker that died is with no kind any more: others take over its units."""
        self._kinds.pop(node, None)
        crashed: str | None = super().remove_node(node)
        return crashed

    def _split_scope(self, nodeid: str) -> str:
        return self._units[nodeid]

    def _reschedule(self, node: WorkerController) -> None:
        """A worker gets its next unit when it has one test left, which it holds back until it knows the next one."""
        if not node.shutting_down and self._pending_of(self.assigned_work[node]) <= 1:
            self._assign_work_unit(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        name = self._next_unit(node)
        if name is None:
            node.shutdown()  # after what it has
            return
        self.workqueue.move_to_end(name, last=False)
        super()._assign_work_unit(node)

    def _next_unit(self, node: WorkerController) -> str | None:
        """The longest unit of the worker's kind; None where there is nothing for it any more."""
        left_s = Counter[str]()
        for name in self.workqueue:
            left_s[_kind(name)] += self._left_s[name]  # type: ignore[assignment]
        if self._kinds.get(node) not in left_s:
            chosen = self._next_kind(node, left_s)
            if chosen is None:
                return None
            self._kinds[node] = chosen
        mine = [name for name in self.workqueue if _kind(name) == self._kinds[node]]
        longest: str = max(mine, key=lambda name: self._left_s[name])
        return longest

    def _next_kind(self, node: WorkerController, left_s: Mapping[str, float]) -> str | None:
        """Real Kafka first: its tests wait, and others use the time. Then Spark with Kafka, whose tests are the longest
        and would be alone at the end. Then what is longest, shared by who is at it."""
        busy = Counter(kind for other, kind in self._kinds.items() if other is not node and not other.shutting_down)
        for kind in ("kafka", "spark"):
            if kind in left_s and not busy[kind]:
                return kind
        worth = {kind: s / (busy[kind] + 1) for kind, s in left_s.items() if not busy[kind] or s > 2 * START_S[kind]}
        return max(worth, key=lambda kind: worth[kind], default=None)


def _kind(unit: str) -> str:
    return unit.split()[1]
