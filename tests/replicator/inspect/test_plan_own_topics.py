"""Which of a flow's own topics `run` makes, besides those with its state."""

from __future__ import annotations

import pytest

from replicator.config import load_text
from replicator.inspect.plan_own_topics import own_topics

POLICY = "policy: {record_refused: {decide: set_aside, gap_offsets_max_per_day: 1}}"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", ["__eos.f.lanes.3", "__eos.f.offsets"]),
        ("delivery: at_least_once", ["__eos.f.lanes.3"]),
        ("consolidate_map: true", ["__eos.f.lanes.3", "__eos.f.offsets", "__eos.f.offsets-index"]),
        (
            "groups: {include: [g]}",
            ["__eos.f.lanes.3", "__eos.f.offsets", "__eos.f.offsets-index", "__eos.f.groups"],
        ),
        (POLICY, ["__eos.f.lanes.3", "__eos.f.offsets", "__eos.f.aside"]),
        ("heartbeat: 10s", ["__eos.f.lanes.3", "__eos.f.offsets", "eos-heartbeat.f"]),
    ],
)
def test_they_are_those_that_its_settings_need(more: str, expected: list[str]) -> None:
    text = f"""\
clusters:
  a: {{properties: {{bootstrap.servers: "a:1"}}}}
  b: {{properties: {{bootstrap.servers: "b:1"}}}}
flows:
  f: {{source: a, target: b, topics: [t], {more}}}
"""
    found = list(own_topics(load_text(text, env={}).flows["f"], 3))
    assert [it.spec.name for it in found] == expected
    assert [it.spec.name for it in found if it.at_source] == [name for name in expected if "heartbeat" in name]
    assert [it.spec.name for it in found if not it.until_then] == ["__eos.f.lanes.3"], "a flow isn't shared without"
