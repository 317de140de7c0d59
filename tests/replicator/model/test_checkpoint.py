"""Positions: what is written is read back, and what somebody else or a newer program wrote is told apart."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from replicator.model import checkpoint
from replicator.model.checkpoint import DIGEST_UNTOLD, BadMetadata, Evidence, NewerMetadata
from replicator.model.partition import Committed

EVIDENCE = Evidence(
    generation=3,
    owner="host:1:abc",
    source_topic="orders",
    source_cluster="S" * 22,
    source_topic_id="source-id",
    target_topic_id="target-id",
    leader_epoch=7,
    log_start=5,
    next_target_offset=1000,
    count=900,
    digest="ab" * 16,
    block_first=990,
    block_count=10,
    digest_before="cd" * 16,
    block_codecs=5,
    committed_ms=1_700_000_000_000,
    moved_ms=1_600_000_000_000,
    owned_ms=1_650_000_000_000,
)


def test_metadata_round_trip_keeps_every_field() -> None:
    assert checkpoint.decode(checkpoint.encode(EVIDENCE)) == EVIDENCE


def test_metadata_of_older_versions_doesn_t_say_when_the_offset_moved_and_since_when_it_is_owned() -> None:
    packed = json.loads(checkpoint.encode(EVIDENCE))
    del packed["mv"], packed["os"], packed["db"], packed["bc"]
    older = replace(EVIDENCE, moved_ms=0, owned_ms=0, digest_before=DIGEST_UNTOLD, block_codecs=0)
    assert checkpoint.decode(json.dumps(packed)) == older


def test_only_a_position_with_a_block_of_the_offset_map_has_the_format_that_older_versions_refuse() -> None:
    mapped = replace(EVIDENCE, map_topic_id="AAAAAAAAAAAAAAAAAAAAAA", map_partition=3, map_offset=17)
    assert checkpoint.decode(checkpoint.encode(mapped)) == mapped
    assert json.loads(checkpoint.encode(mapped))["v"] == 2
    without = checkpoint.without_map(checkpoint.Position(5, mapped))
    assert without == checkpoint.Position(5, EVIDENCE)
    assert json.loads(checkpoint.encode(without.evidence))["v"] == 1


@pytest.mark.parametrize("topic_id", ["", "AAAAAAAAAAAAAAAAAAAAAA"])
def test_a_digest_that_older_versions_do_not_know_has_a_format_that_they_refuse(topic_id: str) -> None:
    digested = replace(EVIDENCE, digest_kind=checkpoint.PAYLOAD_DIGEST_KIND, map_topic_id=topic_id)
    assert json.loads(checkpoint.encode(digested))["v"] == 3
    assert checkpoint.decode(checkpoint.encode(digested)) == digested
    before = replace(digested, digest_kind=checkpoint.OLD_PAYLOAD_DIGEST_KIND)
    assert json.loads(checkpoint.encode(before))["v"] == (2 if topic_id else 1)
    assert checkpoint.decode(checkpoint.encode(before)) == before


def test_metadata_stays_below_the_brokers_limit_with_the_longest_names() -> None:
    longest = replace(EVIDENCE, source_topic="x" * 249, owner="h" * 253 + ":12345:" + "a" * 12)
    assert len(checkpoint.encode(longest)) < checkpoint.METADATA_BYTES_MAX
    with pytest.raises(ValueError, match="over the broker's"):
        checkpoint.encode(replace(EVIDENCE, owner="x" * 5000))


@pytest.mark.parametrize(
    "text",
    ["", "hello", "[]", "{}", '{"v":2}', checkpoint.encode(EVIDENCE).replace('"g":3', '"g":"3"'),
     checkpoint.encode(EVIDENCE).replace('"g":3,', ""), checkpoint.encode(EVIDENCE).replace("records-v1", "other")],
)  # fmt: skip
def test_metadata_that_is_not_ours_is_refused(text: str) -> None:
    with pytest.raises(BadMetadata):
        checkpoint.decode(text)


def metadata(**fields: object) -> str:
    return json.dumps(json.loads(checkpoint.encode(EVIDENCE)) | fields)


@pytest.mark.parametrize("newer", [{"v": checkpoint.FORMAT_VERSION + 1}, {"kind": "other"}])
def test_metadata_of_a_newer_program_that_must_be_understood_stops_the_partition(newer: dict[str, object]) -> None:
    with pytest.raises(NewerMetadata) as caught:
        checkpoint.decode(metadata(**newer))
    assert caught.value.incident == "newer_format"
    assert BadMetadata.incident == "position_unreadable"


def test_metadata_of_a_newer_program_is_read_where_that_is_said_to_be_right() -> None:
    assert checkpoint.decode(metadata(v=checkpoint.FORMAT_VERSION + 1, must_understand=False, more=1)) == EVIDENCE


def test_a_committed_offset_is_no_position_one_that_can_be_read_or_what_stands_in_place_of_one() -> None:
    text = checkpoint.encode(EVIDENCE)
    assert checkpoint.stored(Committed(-1, "")) is None
    assert checkpoint.stored(Committed(-1, text)) is None
    assert checkpoint.stored(Committed(0, text)) == checkpoint.Position(0, EVIDENCE)
    theirs = checkpoint.stored(Committed(7, "theirs"))
    assert isinstance(theirs, checkpoint.Unreadable)
    assert (theirs.committed, theirs.incident) == (Committed(7, "theirs"), "position_unreadable")
