"""The page on Kafka's versions says what was recorded, and what wasn't run."""

from __future__ import annotations

import json
import re

import pytest

from integration_tests.exactly_once import test_three_brokers
from integration_tests.harness.versions import PAIRS, RELEASES, VersionPair, image, target_transactions
from tests.running import durations, kafka_versions
from tests.running.tiers import ROOT

pytestmark = pytest.mark.tier("default")
RECORDED = durations.load(kafka_versions.FILE)


def entry(**changes: object) -> dict[str, object]:
    contract = f"{kafka_versions.CONTRACT}test_a.py::test_a"
    return {
        "done": [contract, "integration_tests/exactly_once/test_b.py::test_b"],
        "failures": [],
        "failed": 0,
        "left": 0,
        "date": "2026-01-02",
        "commit": "abc",
        "code": {},
        **changes,
    }


def test_the_page_says_what_was_recorded() -> None:
    text = kafka_versions.PAGE.read_text()
    assert kafka_versions.written(text, RECORDED) == text, "run python -m tests.running.kafka_versions"
    assert all(release in text for release in RELEASES.values())


def test_each_result_is_of_a_pair_and_names_its_day_and_commit() -> None:
    assert set(RECORDED) <= {pair.name for pair in PAIRS}
    for name, part in RECORDED.items():
        assert {"date", "commit", "machine", "done", "left", "failures"} <= part.keys(), name
        assert not part["commit"].endswith("-dirty"), name


def test_all_versions_meet_each_other_in_each_protocol_of_the_target() -> None:
    alone = [pair for pair in PAIRS if pair.brokers == 1]
    assert len(set(alone)) == len(alone) == len(RELEASES) * sum(map(len, kafka_versions_of_target().values()))
    for source in RELEASES:
        assert {(pair.target, pair.transactions) for pair in alone if pair.source == source} == {
            (target, each) for target, protocols in kafka_versions_of_target().items() for each in protocols
        }


def test_three_brokers_run_the_newest_version_and_meet_the_oldest_one_either_way() -> None:
    oldest, newest = min(RELEASES), max(RELEASES)
    many = [pair for pair in PAIRS if pair.brokers > 1]
    assert {(pair.source, pair.target) for pair in many} == {(newest, newest), (oldest, newest), (newest, oldest)}
    assert {pair.brokers for pair in many} == {test_three_brokers.BROKERS}
    assert len({pair.name for pair in PAIRS}) == len(PAIRS)


def kafka_versions_of_target() -> dict[str, tuple[int, ...]]:
    return {"3.9": (1,), "4.0": (1, 2), "4.3": (1, 2)}


def test_the_tests_are_there() -> None:
    for test in (*kafka_versions.TESTS, *kafka_versions.ON_THREE_BROKERS):
        path, _, function = test.partition("::")
        text = (ROOT / path).read_text()
        assert not function or re.search(rf"\b{function.partition('[')[0]}\b", text), test


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "| 1 passed | 1 passed |  | 2026-01-02, abc |"),
        ({"left": 4}, "| 1 passed | 1 passed | 4 not run | 2026-01-02, abc |"),
        (
            {"left": 3, "failed": 1, "failures": ["a/b.py::test_c[kafka]"]},
            "| 1 passed | 1 passed | 1 failed; 2 not run: `test_c[kafka]` | 2026-01-02, abc |",
        ),
    ],
)
def test_the_table_hides_no_failure(changes: dict[str, object], told: str) -> None:
    pair = PAIRS[0]
    lines = kafka_versions.table(json.loads(json.dumps({pair.name: entry(**changes)}))).splitlines()
    assert lines[2] == f"| {pair.source} | {pair.target} | 1 | {pair.transactions} {told}"
    assert lines[3].endswith("| not run |  |  |  |")
    assert lines[-1].startswith(f"| {PAIRS[-1].source} | {PAIRS[-1].target} | 3, replication factor 3 |")


def test_only_a_whole_run_of_this_code_is_done() -> None:
    assert kafka_versions.done(entry())
    assert not kafka_versions.done({})
    assert not kafka_versions.done(entry(left=1))
    assert not kafka_versions.done(entry(failed=1))
    assert not kafka_versions.done(entry(code={"conftest.py": "another"}))


def test_a_side_is_chosen_by_its_variable() -> None:
    told = VersionPair("3.9", "4.3", 1).environment()
    assert image("source", "default", told) == f"apache/kafka:{RELEASES['3.9']}"
    assert image("target", "default", told) == f"apache/kafka:{RELEASES['4.3']}"
    assert target_transactions(told) == 1
    assert image("source", "default", {}) == "default"
    assert target_transactions({}) is None
    assert image("target", "default", {"EOS_TARGET_KAFKA": "4.1.1"}) == "apache/kafka:4.1.1"
    assert image("target", "default", {"EOS_TARGET_KAFKA": "own/kafka:x"}) == "own/kafka:x"
