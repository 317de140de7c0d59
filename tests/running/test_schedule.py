"""Which worker gets which tests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.running import durations, schedule

KILLS = "integration_tests/exactly_once/test_kill_worker.py"
PLAN = "integration_tests/test_plan.py"
WORDS = "tests/test_words.py"
FRAMES = "tests/replicator/spark/reconcile/test_pairs.py"
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


def test_long_files_on_brokers_are_cut_and_others_are_not() -> None:
    tests = [f"{path}::test_{number}[embedded]" for path in (KILLS, WORDS, SPARK) for number in range(6)]
    units = schedule.units_of(tests, dict.fromkeys(tests, 10.0))
    assert [len(found) for found in units.values()] == [3, 3, 6, 6]
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


def run_all(recorded: dict[str, float], workers: int, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Simulate a run; what each worker ran, in order."""
    option: Any = type("Option", (), {"loadscopereorder": True})()
    config: Any = type("Config", (), {"option": option, "hook": None})()
    monkeypatch.setattr("xdist.scheduler.loadscope.parse_tx_spec_config", lambda config: [None] * workers)
    scheduling = schedule.KindScheduling(config)
    nodes = [Node(number) for number in range(workers)]
    tests = list(recorded)
    for node in nodes:
        scheduling.add_node(node)
        scheduling.add_node_collection(node, tests)
    scheduling.schedule()
    clock, done = dict.fromkeys(nodes, 0.0), dict.fromkeys(nodes, 0)

    def ready(node: Node) -> bool:
        """A worker runs a test when it knows the next one, or that there is none."""
        return done[node] < len(node.sent) - (not node.shutting_down)

    while running := [node for node in nodes if ready(node)]:
        node = min(running, key=lambda each: clock[each])
        index = node.sent[done[node]]
        clock[node] += recorded[tests[index]]
        done[node] += 1
        scheduling.mark_test_complete(node, index)
    assert scheduling.tests_finished
    return [[tests[index] for index in node.sent] for node in nodes]


def test_every_test_runs_once_and_real_kafka_stays_with_one_worker(
    recorded: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded |= {f"{KILLS}::test_{number}[embedded]": 10.0 for number in range(12)}
    recorded |= {f"{KILLS}::test_{number}[kafka]": 10.0 for number in range(4)}
    recorded |= {f"tests/test_{number}.py::test_a": float(number) for number in range(20)}
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
