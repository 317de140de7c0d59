"""docs/compat.md says what runs have seen, has a row for each API, and leaves no difference from Kafka unexplained."""

from __future__ import annotations

import copy
import re

import pytest

from embedded_broker.api.registry import load_all
from tests.running import compat_page, durations
from tests.running.tiers import ROOT

pytestmark = pytest.mark.tier("default")


def test_the_page_says_what_was_seen() -> None:
    assert compat_page.PAGE.read_text() == compat_page.page(), "run python -m tests.running.compat_page"


def test_each_api_of_the_registry_has_a_row_and_was_asked_in_each_version() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (\d+) to (\d+) \|", compat_page.PAGE.read_text(), re.MULTILINE)
    assert {(int(key), int(first), int(last)) for key, _, first, last in rows} == {
        (key, api.versions[0], api.versions[-1]) for key, api in load_all().items()
    }


def test_no_difference_from_kafka_is_undocumented() -> None:
    assert compat_page.undocumented(*compat_page.answers()) == []


def test_a_new_difference_and_one_that_is_gone_are_found() -> None:
    kafka, embedded = compat_page.answers()
    other = copy.deepcopy(embedded)
    other["anybody"]["fetch"] = {"4-18": "unknown_server_error"}  # type: ignore[index]
    assert compat_page.undocumented(kafka, other) == ["fetch: differs for ['anybody'], and [] are documented"]
    assert [line.partition(":")[0] for line in compat_page.undocumented(kafka, kafka)] == [
        "alter_user_scram_credentials",
        "sasl_handshake",
    ]


def test_each_suite_names_tests_that_are_there_and_each_result_a_suite() -> None:
    for suite in compat_page.SUITES:
        for test in suite.tests:
            path, _, function = test.partition("::")
            assert f"def {function.partition('[')[0]}" in (ROOT / path).read_text(), test
    parts = durations.load(compat_page.FILE)
    assert set(parts) <= {suite.client for suite in compat_page.SUITES}
    assert not [name for name, part in parts.items() if part["commit"].endswith("-dirty")]
