"""`policy` in a flow file: what is wrong is named with its place, and what was probably meant."""

from __future__ import annotations

import pytest

from replicator.config import FlowFileError, load_text

FILE = """
clusters:
  a: {{ properties: {{ bootstrap.servers: "a:1" }} }}
  b: {{ properties: {{ bootstrap.servers: "b:1" }} }}
flows:
  orders:
    source: a
    target: b
    topics: [orders]
    policy: {policy}
"""


def test_rules_are_read() -> None:
    text = FILE.format(policy="{ record_refused: { decide: set_aside, gap_offsets_max_per_day: 100 } }")
    policy = load_text(text).flows["orders"].policy
    rule = policy.of("record_refused")
    assert rule is not None
    assert (rule.decide, rule.gap_offsets_max_per_day) == ("set_aside", 100)
    assert (policy.of("source_records_gone"), policy.of("target_lost_data")) == (None, None)
    assert (policy.decides, policy.sets_aside) == (True, True)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("{ record_refusd: { decide: skip, gap_offsets_max_per_day: 1 } }", "did you mean 'record_refused'?"),
        ("{ target_lost_data: { decide: skip, gap_offsets_max_per_day: 1 } }", "unknown key"),
        ("{ record_refused: { decide: set_asid, gap_offsets_max_per_day: 1 } }", "did you mean 'set_aside'?"),
        ("{ source_records_gone: { decide: set_aside, gap_offsets_max_per_day: 1 } }", "expected stop or skip"),
        ("{ record_refused: { decide: skip } }", "needs both"),
        ("{ record_refused: { gap_offsets_max_per_day: 5 } }", "needs both"),
        ("{ record_refused: { decide: skip, gap_offsets_max_per_day: -1 } }", "must be at least 0"),
        ("{ record_refused: { decide: skip, gap_offset_max_per_day: 1 } }", "did you mean 'gap_offsets_max_per_day'?"),
        ("{ record_refused: skip }", "expected keys with values"),
    ],
)
def test_what_is_wrong_is_named(policy: str, said: str) -> None:
    with pytest.raises(FlowFileError) as found:
        load_text(FILE.format(policy=policy))
    assert said in str(found.value), found.value
    assert "policy" in str(found.value)
