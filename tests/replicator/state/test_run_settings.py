"""What operators have set of a flow: how changes follow one another, and the one record that holds them."""

from __future__ import annotations

import json

import pytest

from replicator.state.control_topic import Control, fold
from replicator.state.envelope import NewerFormat
from replicator.state.generation import BadControl, Generation, Phase
from replicator.state.run_settings import KEY, NO_SETTINGS, Paused, RateLimit, decode

ANN, BEN = Paused(by="ann", at_ms=1, why="moved"), Paused(by="ben", at_ms=2)
OPEN = Generation(1, Phase.OPEN, 1)


def test_a_pause_of_the_flow_is_one_of_each_topic() -> None:
    flow = NO_SETTINGS.pause([], ANN)
    assert flow.paused_at("any") == ANN
    one = NO_SETTINGS.pause(["t"], BEN)
    assert (one.paused_at("t"), one.paused_at("u")) == (BEN, None)


def test_who_paused_first_stands() -> None:
    assert NO_SETTINGS.pause(["t"], ANN).pause(["t", "u"], BEN).paused == {"t": ANN, "u": BEN}


def test_a_resume_of_the_flow_is_one_of_all_topics_and_of_a_topic_only_of_that() -> None:
    both = NO_SETTINGS.pause(["t", "u"], ANN)
    assert both.resume(["t"]).paused == {"u": ANN}
    assert both.pause([], BEN).resume([]).paused == {}


def test_a_limit_of_one_is_said_in_the_singular() -> None:
    one, more = RateLimit(records_per_s=1, bytes_per_s=1, by="ann"), RateLimit(records_per_s=2_000, bytes_per_s=2)
    assert one.bound_said == "at most 1 record/s and 1 byte/s, set by ann"
    assert more.bound_said == "at most 2,000 records/s and 2 bytes/s, as the flow file says"


def test_each_change_has_a_higher_number_and_the_same_again_is_no_change() -> None:
    first = NO_SETTINGS.pause([], ANN)
    again = first.pause([], BEN)
    assert [NO_SETTINGS.number, first.number, again.number] == [0, 1, 2]
    assert again.same(first)
    limited = first.limit(["t"], RateLimit(records_per_s=5, by="ann", at_ms=1))
    assert not limited.same(first)
    assert limited.limit(["t"], RateLimit(records_per_s=5, by="ben", at_ms=9)).same(limited)
    assert limited.limit(["t"], None).same(first)


def test_a_control_topic_gives_them_back_whatever_stands_around_them() -> None:
    written = NO_SETTINGS.pause(["t"], ANN).limit([], RateLimit(bytes_per_s=7, by="ann", at_ms=3))
    records = [(OPEN.key, OPEN.encode()), NO_SETTINGS.pause([], BEN).encode(), written.encode()]
    assert fold(records) == Control({1: OPEN}, settings=written)
    assert fold([*records, (KEY, None)]).settings == written, "a tombstone is nobody's: what was read last stands"


@pytest.mark.parametrize(
    "damage",
    [
        {"paused": {"t": {"by": "ann"}}},
        {"paused": []},
        {"number": None},
        {"rates": {"": {"records_per_s": 0, "bytes_per_s": None, "by": "", "at_ms": 0}}},
        {"rates": {"": {"records_per_s": "7", "bytes_per_s": None, "by": "", "at_ms": 0}}},
    ],
)
def test_an_unreadable_record_is_no_empty_one(damage: dict[str, object]) -> None:
    value = json.dumps({**json.loads(NO_SETTINGS.encode()[1]), **damage}).encode()
    with pytest.raises(BadControl, match="run_settings"):
        fold([(OPEN.key, OPEN.encode()), (KEY, value)])


def test_another_format_is_ignored_unless_it_must_be_understood() -> None:
    body = json.loads(NO_SETTINGS.encode()[1])
    assert body["must_understand"] is False, "an older version copies on, and loses nothing"
    assert decode(json.dumps({**body, "v": 99}).encode()) is None
    with pytest.raises(NewerFormat):
        decode(json.dumps({**body, "v": 99, "must_understand": True}).encode())
