"""What pages say of long runs is what `tests/long_results.json` has."""

from __future__ import annotations

import re

from tests.running import durations
from tests.running.tiers import ROOT

PAGE = ROOT / "docs/operate/workers.md"


def test_as_many_schedules_of_workers_have_passed_as_the_page_says() -> None:
    found = durations.load(ROOT / "tests/long_results.json")
    workers = {name: part for name, part in found.items() if name.startswith("workers: schedules")}
    assert all((part["failed"], part["left"]) == (0, 0) for part in workers.values())
    passed = {
        where: sum(part["passed"] for name, part in workers.items() if where in name)
        for where in ("schedules, series", "on Kafka", "with three brokers")
    }
    said = re.search(
        r"(\d+) random schedules.*?(\d+) of them.*?, (\d+) on Kafka, (\d+) on", PAGE.read_text(), re.DOTALL
    )
    assert said is not None
    assert [int(number) for number in said.groups()] == [sum(passed.values()), *passed.values()]
