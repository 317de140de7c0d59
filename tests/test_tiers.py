"""What each tier of the tests holds and costs: `make test` leaves out nothing that it must show, and stays short."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from fnmatch import fnmatchcase

import pytest

from tests.running import durations, table
from tests.running.newcomers import SECONDS_MAX
from tests.running.tiers import COLLECTED, POINTS_MAX, ROOT, TIERS, Placed

pytestmark = pytest.mark.tier("default")  # collects all tests
WORKERS = {"unit": 2, "default": 4, "extended": 4, "full": 4}
RECORDED = {"unit": "test-unit", "default": "test", "extended": "test", "full": ""}
"""The part of `tests/durations.json` that has all tests of the tier's command, if one has."""
LIMITS_S = {"unit": 75, "default": 450, "extended": 1_000, "full": 2_030}
"""For the run of the tests on the machine of the recorded times. `make test` makes the environment and lints, too, for
a minute, and takes 12 at most, with room for slower machines; with the rest of `make test-full` 35."""
STARTS_S = {"unit": 20, "default": 0, "extended": 0, "full": 0}
"""Of these for what isn't in the times of tests, where it counts: in a new clone workers compile, and then collect."""
EXACTLY_ONCE, PARTITIONS = "integration_tests/exactly_once", "integration_tests/partitions"
KEPT = {
    "a worker is killed": f"{EXACTLY_ONCE}/test_kill_worker.py::test_a_worker_killed_at_any_step_*embedded*",
    "a worker is killed before the commit": f"{EXACTLY_ONCE}/test_kill_worker.py::*embedded-before_end_txn*",
    "a worker is killed after the commit": f"{EXACTLY_ONCE}/test_kill_worker.py::*embedded-after_end_txn*",
    "a worker is killed, on real Kafka": f"{EXACTLY_ONCE}/test_kill_worker.py::test_a_worker_killed_*kafka*",
    "the target's broker is killed": f"{EXACTLY_ONCE}/test_kill_broker.py::test_the_target_is_killed_*embedded*",
    "the source's broker is killed": f"{EXACTLY_ONCE}/test_kill_broker.py::test_the_source_is_killed_*embedded*",
    "a zombie": f"{EXACTLY_ONCE}/test_zombie.py::test_a_worker_that_wakes_up_after_its_successor_came_*embedded*",
    "a lost reply to a commit": f"{EXACTLY_ONCE}/test_lost_messages.py::test_a_lost_commit_*embedded-*REPLY*",
    "at least once": f"{EXACTLY_ONCE}/test_delivery_modes.py::test_at_least_once_*embedded*",
    "at most once": f"{EXACTLY_ONCE}/test_delivery_modes.py::test_at_most_once_*embedded*",
    "exactly once after another mode": f"{EXACTLY_ONCE}/test_delivery_modes.py::test_after_a_switch_*embedded*",
    "truncation": f"{EXACTLY_ONCE}/test_truncation.py::test_a_source_that_lost_copied_records_*embedded*",
    "no false truncation": f"{EXACTLY_ONCE}/test_truncation.py::test_a_position_behind_an_aborted_tail_*embedded*",
    "a source topic made again": f"{PARTITIONS}/test_source_topic_recreated.py::*embedded*",
    "a target topic made again": f"{PARTITIONS}/test_target_topics.py::*embedded*recreated*",
    "a schedule of faults": f"{EXACTLY_ONCE}/test_torture.py::*embedded*",
    "a backfill that is killed": f"{EXACTLY_ONCE}/test_backfill.py::test_a_backfill_that_died_*embedded*",
    "every kind of damage": "integration_tests/spark/test_reconcile.py::test_damage_of_every_kind_*embedded*",
    "a simulation": "tests/embedded_broker/simulation/test_clean_seeds.py::*",
    "power cuts": "tests/embedded_broker/test_power_cuts.py::*",
    "the README's example": "integration_tests/test_readme.py::*",
    "a demo": "tests/cli/test_demo.py::*",
    "the image": "integration_tests/test_image.py::*",
    "the site": "tests/test_site.py::*",
    "the chart": "integration_tests/kubernetes/test_chart.py::*",
}
"""What `make test` shows, and at least one test that shows it."""


@pytest.fixture(scope="module")
def placed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Placed]:
    """All tests there are: those of this run, if it was asked for all."""
    collected = request.config.stash[COLLECTED]
    if {each.test.partition("/")[0] for each in collected} == {"tests", "integration_tests"}:
        return collected
    file = tmp_path_factory.mktemp("tiers") / "tiers.json"
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "--tiers", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr
    return [Placed(**each) for each in json.loads(file.read_text())]


def in_make_test(placed: list[Placed]) -> list[Placed]:
    return [each for each in placed if each.tier in ("unit", "default")]


@pytest.mark.parametrize("shown", KEPT)
def test_make_test_shows(placed: list[Placed], shown: str) -> None:
    assert [each for each in in_make_test(placed) if matches(each.test, KEPT[shown])]


def matches(test: str, pattern: str) -> bool:
    return fnmatchcase(test.replace("[", "("), pattern)


def test_make_test_has_the_contract_on_both_brokers(placed: list[Placed]) -> None:
    def files(tests: list[Placed]) -> set[tuple[str, str]]:
        contract = [each for each in tests if each.test.startswith("integration_tests/contract/")]
        return {(each.test.partition("::")[0], each.broker) for each in contract}

    assert len(files(placed)) > 30
    assert files(in_make_test(placed)) == files(placed)


def test_make_test_full_has_a_few_points_of_a_sweep_and_the_others_are_long(placed: list[Placed]) -> None:
    points = Counter((each.test.partition("[")[0], each.broker) for each in placed if each.tier == "full")
    assert max(points.values()) == POINTS_MAX
    planted = [each.tier for each in placed if matches(each.test, "tests/*/test_simulation.py::test_a_planted_bug_*")]
    assert planted.count("full") == POINTS_MAX
    assert planted.count("long") > 50


def test_no_parameter_brings_a_test_that_says_long_into_an_earlier_tier(placed: list[Placed]) -> None:
    """The parameter `batches` says `full`."""
    pattern = "integration_tests/batches/*::test_the_target_is_dead_until_*"
    assert {each.tier for each in placed if matches(each.test, pattern)} == {"long"}


@pytest.mark.parametrize("tier", LIMITS_S)
def test_a_tier_stays_within_its_time(placed: list[Placed], tier: str) -> None:
    """The recorded times of all that the command runs. What was never recorded counts for `durations.UNKNOWN_S`."""
    tests = [each.test for each in placed if TIERS.index(each.tier) <= TIERS.index(tier)]
    total_s = sum(durations.expected(tests, first=RECORDED[tier]).values())
    limit_s = (LIMITS_S[tier] - STARTS_S[tier]) * WORKERS[tier]
    assert total_s <= limit_s, "take something into a later tier, or make it quicker"


def test_a_slow_test_says_its_tier(placed: list[Placed]) -> None:
    """So that whoever writes it has thought of where it belongs. A run finds one that isn't recorded yet."""
    seconds = durations.expected([each.test for each in placed])
    quiet = {each.test: each.tier for each in placed if not each.said}
    assert {test: seconds[test] for test, tier in quiet.items() if seconds[test] > SECONDS_MAX[tier]} == {}


def test_the_table_of_contributing_is_what_was_recorded() -> None:
    text = table.PAGE.read_text()
    assert table.written(text, durations.load()) == text, "run python -m tests.running.table"


def test_what_was_recorded_names_its_day_commit_and_machine() -> None:
    parts = durations.load()
    assert set(parts) == {"test-unit", "test", "test-rest"}
    for name, part in parts.items():
        assert {"date", "commit", "machine", "versions", "workers", "files"} <= part.keys(), name
        assert not part["failures"]
