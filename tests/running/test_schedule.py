"""Which worker gets which tests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.running import durations, schedule

KILLS = "integration_tests/exactly_once/test_kill_worker.py"
PLAN = "integration_tests/test_plan.py"
README = "integration_tests/test_readme.py"
WORDS = "tests/test_words.py"
FRAMES = "tests/replicator/spark/reconcile/test_resolve.py"
SPARK = "integration_tests/spark/test_reconcile.py"


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (f"{WORDS}::test_a", "unit"),
        (f"{KILLS}::test_a[embedded-x]", "embedded"),
        (f"{KILLS}::test_a[kafka-x]", "kafka"),
        (f"{KILLS}::test_a[x-kafka]", "kafka"),
        (f"{PLAN}::test_a", "kafka"),
        (f"{FRAMES}::test_a", "frames"),
        (f"{SPARK}::test_a[kafka]", "spark"),
        ("tests/test_clients_tried.py::test_a[kafka-python]", "unit"),
    ],
)
def test_the_kind_follows_from_the_id(test: str, expected: str) -> None:
    assert schedule.kind_of(test) == expected


def test_long_files_are_cut_but_those_whose_tests_share_something() -> None:
    tests = [f"{path}::test_{number}[embedded]" for path in (KILLS, WORDS, SPARK, README) for number in range(6)]
    units = schedule.units_of(tests, dict.fromkeys(tests, 15.0))
    assert [len(found) for found in units.values()] == [2, 2, 2, 2, 2, 2, 4, 2, 6]
    assert [test for found in units.values() for test in found] == tests


class Node:
    """A worker as the schedule sees it."""

    def __init__(self, number: int) -> None:
        self.gateway = type("Gateway", (), {"id": f"gw{number}"})()
        self.shutting_down = False
        self.sent: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    seconds: dict[str, float] = {}
    monkeypatch.setattr(durations, "expected", lambda tests: {test: seconds[test] for test in tests})
    return seconds


class Run:
    """A run whose tests take what is recorded."""

    def __init__(self, recorded: dict[str, float], workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
        option: Any = type("Option", (), {"loadscopereorder": True})()
        config: Any = type("Config", (), {"option": option, "hook": None})()
        monkeypatch.setattr("xdist.scheduler.loadscope.parse_tx_spec_config", lambda config: [None] * workers)
        self.scheduling = schedule.KindScheduling(config)
        self.nodes: list[Node] = []
        self._recorded, self._tests = recorded, list(recorded)
        self._clock: dict[Node, float] = {}
        self._done: dict[Node, int] = {}
        for number in range(workers):
            self.add(Node(number))
        self.scheduling.schedule()

    def add(self, node: Node) -> None:
        """One more worker, which has collected all tests."""
        self.nodes.append(node)
        self._clock[node], self._done[node] = 0.0, 0
        self.scheduling.add_node(node)
        self.scheduling.add_node_collection(node, self._tests)

    def step(self) -> bool:
        """The next test; False at the end. A worker runs a test when it knows the next one, or that there is none."""
        ready = [node for node in self.nodes if self._done[node] < len(node.sent) - (not node.shutting_down)]
        if not ready:
            return False
        node = min(ready, key=lambda each: self._clock[each])
        index = node.sent[self._done[node]]
        self._clock[node] += self._recorded[self._tests[index]]
        self._done[node] += 1
        self.scheduling.mark_test_complete(node, index)
        return True

    def ran(self) -> list[list[str]]:
        """What each worker has run, in order."""
        return [[self._tests[index] for index in node.sent[: self._done[node]]] for node in self.nodes]


def run_all(recorded: dict[str, float], workers: int, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A whole run; what each worker ran, in order."""
    run = Run(recorded, workers, monkeypatch)
    while run.step():
        pass
    assert run.scheduling.tests_finished
    return run.ran()


def test_every_test_runs_once_and_real_kafka_stays_with_one_worker(
    recorded: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded |= {f"{KILLS}::test_{number}[embedded]": 10.0 for number in range(12)}
    recorded |= {f"{KILLS}::test_{number}[kafka]": 10.0 for number in range(4)}
    recorded |= {f"{WORDS}::test_{number}": float(number % 10) for number in range(40)}
    ran = run_all(recorded, 3, monkeypatch)
    assert sorted(test for worker in ran for test in worker) == sorted(recorded)
    with_kafka = [{schedule.kind_of(test) == "kafka" for test in worker} for worker in ran]
    assert sum(True in kinds for kinds in with_kafka) == 1
    totals = [sum(recorded[test] for test in worker) for worker in ran]
    assert max(totals) - min(totals) <= 20.0, totals


def test_a_worker_is_not_started_for_what_is_nearly_done(
    recorded: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded |= {f"{PLAN}::test_{number}": 5.0 for number in range(9)} | {f"{WORDS}::test_a": 1.0}
    ran = run_all(recorded, 2, monkeypatch)
    assert [{schedule.kind_of(test) for test in worker} for worker in ran] == [{"kafka"}, {"unit"}]


def test_the_longest_test_is_not_left_for_the_end(recorded: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """On Spark with Kafka, beside others that take longer together: they are done while it runs."""
    recorded |= {f"{WORDS}::test_{number}": 5.0 for number in range(40)} | {f"{SPARK}::test_a[embedded]": 80.0}
    ran = run_all(recorded, 2, monkeypatch)
    assert any(worker[0].startswith(SPARK) for worker in ran), ran
    assert max(sum(recorded[test] for test in worker) for worker in ran) <= 140.0 + schedule.UNIT_S_MAX["unit"]


def test_a_new_worker_takes_over_what_one_that_died_has_left(
    recorded: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded |= {f"{PLAN}::test_{number}": 5.0 for number in range(9)}
    recorded |= {f"{WORDS}::test_{number}": 5.0 for number in range(9)}
    run = Run(recorded, 2, monkeypatch)
    for _ in range(4):
        run.step()
    died, other = run.nodes
    before = run.ran()[0]
    assert {schedule.kind_of(test) for test in before} == {"kafka"}
    assert run.scheduling.remove_node(died) == f"{PLAN}::test_{len(before)}"
    run.nodes = [other]
    run.add(Node(2))  # as pytest-xdist does it
    run.scheduling.schedule()
    while run.step():
        pass
    assert sorted([*before, *(test for worker in run.ran() for test in worker)]) == sorted(recorded)
