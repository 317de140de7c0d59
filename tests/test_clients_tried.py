"""The list of clients that were tried says the versions that the tests use, and where they are used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| (?P<client>[^|]+) \| (?P<version>[^|]+) \| `(?P<path>[^`]+)` \|$", re.MULTILINE)
SECTION = (ROOT / "docs/testing-with-the-broker.md").read_text().partition("## Clients tried")[2].partition("\n## ")[0]
ROWS = {row["client"]: row for row in ROW.finditer(SECTION)}
CLIENTS = "integration_tests/clients"
IMAGE = ("integration_tests/harness/kafka_container.py", r'IMAGE = .*"apache/kafka:(.*)"')
VERSIONS = {
    "librdkafka (confluent-kafka)": ("constraints.txt", r"^confluent-kafka==(\S+)"),
    "Java, 4.x; MirrorMaker 2": IMAGE,
    "Kafka's command-line tools": IMAGE,
    "Java, 3.x": (f"{CLIENTS}/java_program.py", r'^VERSION = "(.*)"'),
    "Spark's connector": ("constraints.txt", r"^pyspark==(\S+)"),
    "franz-go": (f"{CLIENTS}/franz_go/go.mod", r"franz-go v(\S+)"),
    "aiokafka": ("constraints.txt", r"^aiokafka==(\S+)"),
    "kafka-python": ("constraints.txt", r"^kafka-python==(\S+)"),
}


@pytest.mark.parametrize("client", VERSIONS)
def test_the_version_is_the_one_that_is_used(client: str) -> None:
    path, pattern = VERSIONS[client]
    found = re.search(pattern, (ROOT / path).read_text(), re.MULTILINE)
    assert found is not None, f"{path} has no {pattern}"
    assert ROWS[client]["version"] == found[1]


def test_every_row_leads_to_a_test_and_every_program_has_a_row() -> None:
    assert set(ROWS) == {*VERSIONS, "kcat"}
    shown = {row["path"] for row in ROWS.values()}
    assert {path for path in shown if not (ROOT / path).exists()} == set()
    programs = {f"{CLIENTS}/{path.name}" for path in (ROOT / CLIENTS).glob("*_program.py")}
    assert programs | {f"{CLIENTS}/franz_go"} == {path for path in shown if path.startswith(CLIENTS)}
