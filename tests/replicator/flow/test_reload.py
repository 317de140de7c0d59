"""Which flows of a file have changed, whatever it is of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from replicator.config import Config, load_text
from replicator.flow.reload import FlowChanges, compare, needs_restart

FILE = """\
clusters:
  a: {properties: {bootstrap.servers: "a:9092"}}
  b: {properties: {bootstrap.servers: "b:9092", sasl.password: "${WORD}", sasl.username: me,
    sasl.mechanism: SCRAM-SHA-256, security.protocol: SASL_SSL, client.id: "file:id"}}
flows:
  first: {source: a, target: b, topics: [x]}
  second: {source: a, target: a, topics: [y], rename: "{topic}.copy"}
"""


def file(directory: Path, *changes: tuple[str, str], word: str = "w", id_: str = "c") -> Config:
    text = FILE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (directory / "id").write_text(id_)
    return load_text(text, env={"WORD": word}, directory=directory)


def changed(before: Config, after: Config) -> FlowChanges:
    return compare(before.flows, after.flows)


def test_a_file_that_says_the_same_changes_nothing(tmp_path: Path) -> None:
    before, after = (
        file(tmp_path),
        file(tmp_path, ("topics: [x]", "topics: ['x']"), ("clusters:", "# a note\nclusters:")),
    )
    assert changed(before, after) == FlowChanges((), (), (), ("first", "second"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("topics: [x]", "topics: [x, z]"), "first"),
        (("topics: [x]", "topics: [x], commit: {interval_ms: 777}"), "first"),
        (("topics: [y]", "topics: [y], lanes: 3"), "second"),
        (('"b:9092"', '"b:9093"'), "first"),
    ],
)
def test_any_setting_of_a_flow_or_its_clusters_changes_it_alone(
    tmp_path: Path, change: tuple[str, str], expected: str
) -> None:
    changes = changed(file(tmp_path), file(tmp_path, change))
    assert changes.changed == (expected,)
    assert set(changes.unchanged) == {"first", "second"} - {expected}
    assert changes.added == changes.removed == ()


def test_a_secret_is_a_setting(tmp_path: Path) -> None:
    before = file(tmp_path)
    assert changed(before, file(tmp_path, word="other")).changed == ("first",)
    assert changed(before, file(tmp_path, id_="other")).changed == ("first",)


def test_flows_come_and_go_by_their_names(tmp_path: Path) -> None:
    changes = changed(file(tmp_path), file(tmp_path, ("  second:", "  third:")))
    assert changes == FlowChanges(("third",), ("second",), (), ("first",))


def test_sections_that_only_a_start_reads_are_named(tmp_path: Path) -> None:
    before = file(tmp_path)
    assert needs_restart(before, file(tmp_path)) == ()
    assert needs_restart(before, file(tmp_path, ("flows:", 'metrics: {listen: "127.0.0.1:1"}\nflows:'))) == ("metrics",)
