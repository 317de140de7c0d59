"""Flow files: what is read, and how every fault is named."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from replicator.config import Config, Delivery, FlowFileError, Start, load, load_text
from replicator.config.models import LANES_AUTO
from replicator.model.errors import ConfigError

CLUSTERS = """\
clusters:
  a: {properties: {bootstrap.servers: "a:9092"}}
  b: {properties: {bootstrap.servers: "b:9092"}}
flows:
"""


def flow_file(flow: str) -> str:
    """A file with clusters a and b, and one flow that begins on line 5; settings begin on line 7."""
    return CLUSTERS + "  orders:\n    {source: a, target: b, topics: [orders],\n" + flow + "\n    }\n"


def faults(text: str, env: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(FlowFileError) as caught:
        load_text(text, env=env or {})
    return [str(fault) for fault in caught.value.faults]


def loaded(text: str, env: dict[str, str] | None = None) -> Config:
    return load_text(text, env=env or {})


def test_smallest_flow_has_the_documented_defaults() -> None:
    flow = loaded(flow_file("")).flows["orders"]
    assert (flow.name, flow.source.name, flow.target.name) == ("orders", "a", "b")
    assert flow.topics == ("orders",)
    assert flow.rename == "{source}.{topic}"
    assert flow.delivery is Delivery.EXACTLY_ONCE
    assert flow.start == Start(kind="earliest", timestamp_ms=-1)
    assert (flow.commit.interval_ms, flow.commit.records_max, flow.commit.bytes_max) == (1000, 100_000, 33_554_432)
    assert (flow.lanes, flow.new_topics, flow.new_partitions) == (LANES_AUTO, "copy", "copy")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("lane: 1", "line 7: flows.orders.lane: unknown key; did you mean 'lanes'?"),
        ("xyzzy: 1", "line 7: flows.orders.xyzzy: unknown key; known are "),
        ("commit: {interval: 1}", "line 7: flows.orders.commit.interval: unknown key; did you mean 'interval_ms'"),
        ("lanes: true", "line 7: flows.orders.lanes: expected a whole number, not true"),
        ('lanes: "2"', "line 7: flows.orders.lanes: expected a whole number, not '2'"),
        ("lanes: 0", "line 7: flows.orders.lanes: must be at least 1, not 0"),
        ("lanes: 1.5", "line 7: flows.orders.lanes: expected a whole number, not 1.5"),
        ("lanes: ", "line 7: flows.orders.lanes: expected a whole number; it has no value"),
        ("limits: 5", "line 7: flows.orders.limits: expected keys with values, not 5"),
        ("delivery: twice", "line 7: flows.orders.delivery: expected exactly_once, at_least_once or at_most_once, not"),
        ("exclude: orders", "line 7: flows.orders.exclude: expected a list, not 'orders'"),
        ("exclude: [1]", "line 7: flows.orders.exclude[0]: expected text, not 1"),
        ('exclude: ["^("]', "line 7: flows.orders.exclude[0]: '^(' is not a regular expression: "),
        ("exclude: [a b]", "line 7: flows.orders.exclude[0]: 'a b' is not a topic name; a regular expression starts"),
        ("rename: '{sauce}.{topic}'", "line 7: flows.orders.rename: unknown placeholder {sauce}; known are {source},"),
        ("rename: 'x/{topic}'", "line 7: flows.orders.rename: a topic name takes only letters, digits"),
        ("rename: 'x{topic'", "line 7: flows.orders.rename: a topic name takes only letters, digits"),
        ("start: newest", "line 7: flows.orders.start: expected earliest, latest or a time such as"),
        ("start: 2026-01-31T12:00:00", "line 7: flows.orders.start: the time needs a zone"),
        ("start: {kind: timestamp}", "line 7: flows.orders.start: timestamp_ms goes with kind timestamp"),
        ("start: {kind: latest, timestamp_ms: 5}", "line 7: flows.orders.start: timestamp_ms goes with kind timestamp"),
        (
            "topic_configs: {replication_factor: 0}",
            "line 7: flows.orders.topic_configs.replication_factor: expected -1",
        ),
        (
            "limits: {record_bytes_max: 1}",
            "line 7: flows.orders.limits.record_bytes_max: must be at least 1024 (1KiB)",
        ),
        ("lanes: 1, lanes: 2", "line 7: flows.orders.lanes: written twice, first on line 7"),
        ("7: x", "line 7: flows.orders: key '7' is not text; put it in quotes"),
    ],
)
def test_each_fault_names_key_path_and_line(setting: str, expected: str) -> None:
    (fault,) = faults(flow_file(setting))
    assert fault.startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "line 1: empty: clusters and flows are needed"),
        ("# nothing\n", "line 1: empty: clusters and flows are needed"),
        ("[]", "line 1: expected the keys clusters and flows"),
        ("a: [", "line 1: not readable as YAML: while parsing a flow node, "),
        ("a: b: c", "line 1: not readable as YAML: mapping values are not allowed here"),
        ("a: *b", "line 1: not readable as YAML: "),
        ("a: !!python/object/apply:os.system [id]", "line 1: not readable as YAML: "),
        ("--- 1\n--- 2", "line 2: not readable as YAML: expected a single document in the stream"),
        ("a: \x00", "not readable as YAML: "),
        ("a: &x [*x]", "line 1: not readable as YAML: too large or too deep"),
        ("? [a]\n: 1", "line 1: not readable as YAML: a key must be text"),
    ],
)
def test_what_is_no_flow_file_at_all(text: str, expected: str) -> None:
    assert faults(text)[0].startswith(expected)


def test_anchors_that_multiply_are_refused_before_they_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "too large" in faults("\n".join(lines))[0]


def test_all_faults_come_at_once_in_the_order_of_lines() -> None:
    text = dedent(
        """\
        clusters:
          a:
            properties: {bootstrap.servers: "a:1", acks: 1}
          b:
            properties: {sasl.password: "${NOPE}"}
            colour: red
        flows:
          x:
            source: aa
            target: b
            topics: []
          y:
            target: b
            lanes: -1
        """
    )
    found = faults(text)
    assert [fault.split(": ")[0:2] for fault in found] == [
        ["line 3", "clusters.a.properties.acks"],
        ["line 5", "clusters.b.properties"],
        ["line 5", "clusters.b.properties.sasl.password"],
        ["line 6", "clusters.b.colour"],
        ["line 9", "flows.x.source"],
        ["line 11", "flows.x.topics"],
        ["line 12", "flows.y.source"],
        ["line 12", "flows.y.topics"],
        ["line 14", "flows.y.lanes"],
    ]


@pytest.mark.parametrize("section", ["clusters", "flows"])
def test_both_sections_are_needed(section: str) -> None:
    assert any(f"{section}: expected at least one" in fault for fault in faults(f"{section}: {{}}"))


def test_top_level_keys_are_checked_too() -> None:
    misspelt = CLUSTERS.replace("flows", "flws") + "  x: 1"
    assert faults(misspelt) == ["line 4: flws: unknown key; did you mean 'flows'?"]
    assert faults("version: 2\n" + flow_file("")) == ["line 1: version: expected 1, not 2"]
    assert faults("version: yes\n" + flow_file("")) == ["line 1: version: expected 1, not true"]


@pytest.mark.parametrize("name", ["a.b", "ä", "-x", "a b", "x" * 101])
def test_flow_names_fit_into_topic_names_and_transactional_ids(name: str) -> None:
    (fault,) = faults(CLUSTERS + f"  {name!r}: {{source: a, target: b, topics: [orders]}}\n")
    assert "a name has letters, digits" in fault


@pytest.mark.parametrize(
    ("written", "kind", "timestamp_ms"),
    [
        ("latest", "latest", -1),
        ("2026-01-31T12:00:00Z", "timestamp", 1_769_860_800_000),
        ("2026-01-31T13:00:00.250+01:00", "timestamp", 1_769_860_800_250),
        ("{kind: timestamp, timestamp_ms: 7}", "timestamp", 7),
    ],
)
def test_start_has_short_forms(written: str, kind: str, timestamp_ms: int) -> None:
    start = loaded(flow_file(f"start: {written}")).flows["orders"].start
    assert (start.kind, start.timestamp_ms) == (kind, timestamp_ms)


def test_anchors_and_merge_keys_share_settings_between_flows() -> None:
    text = CLUSTERS + dedent(
        """\
          one: &base {source: a, target: b, topics: [x], lanes: 3}
          two: {<<: *base, topics: [y]}
        """
    ).replace("one", "  one").replace("two", "  two")
    flows = loaded(text).flows
    assert (flows["two"].lanes, flows["two"].topics) == (3, ("y",))


def test_a_rename_without_topic_is_for_a_single_topic_only() -> None:
    assert loaded(flow_file("rename: one")).flows["orders"].rename == "one"
    text = CLUSTERS + "  orders: {source: a, target: b, topics: [x, y], rename: one}"
    assert faults(text) == [
        "line 5: flows.orders.rename: needs {topic}: without it all topics of the flow would be written to one"
    ]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*nope\.yaml: No such file"):
        load(tmp_path / "nope.yaml", {})
    (tmp_path / "binary.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(byte 3\)"):
        load(tmp_path / "binary.yaml", {})
    (tmp_path / "large.yaml").write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        load(tmp_path / "large.yaml", {})


def test_flows_are_frozen() -> None:
    flow = loaded(flow_file("")).flows["orders"]
    with pytest.raises(ValueError, match="frozen"):
        flow.lanes = 2
