"""Limits of requests: counts, sizes and tagged fields that a request claims and doesn't hold are refused."""

from __future__ import annotations

import io
import tracemalloc
from typing import Any

import pytest
from kio.serial import entity_writer

from embedded_broker.api.registry import load_all
from embedded_broker.wire import schema
from embedded_broker.wire.framing import read_header
from embedded_broker.wire.request_limits import ITEMS_MAX, TAGS_MAX, BadRequest, TooManyItems, check_request

EVERY = [(api.name, version) for api in load_all().values() for version in api.versions]
NO_TAGS, ONE_TAG = b"\x00", b"\x01"
FLAGS_OF_METADATA_9 = b"\0\0\0"


def checked(name: str, version: int, frame: bytes, at: int, items_max: int = ITEMS_MAX) -> bytes:
    """The frame without what this version doesn't have."""
    return bytes(check_request(name, version, frame, at, items_max)[0])


def _request(name: str, version: int, **fields: Any) -> bytes:
    made = schema.builder(schema.entity(name, version, "request"))(fields)
    out = io.BytesIO()
    entity_writer(type(made))(out, made)
    return out.getvalue()


@pytest.mark.tier("default")
@pytest.mark.parametrize(("name", "version"), EVERY)
def test_a_whole_request_of_every_api_is_left_as_it_is_and_any_shorter_one_refused(name: str, version: int) -> None:
    request = _request(name, version)
    assert checked(name, version, request, 0) == request
    for end in range(len(request)):
        with pytest.raises(BadRequest):
            checked(name, version, request[:end], 0)


def test_fields_of_every_shape_are_passed_over() -> None:
    partitions = [{"partition_index": 7, "committed_offset": 5, "committed_metadata": "x" * 300}]
    topics = [{"name": "t" * 200, "partitions": partitions * 3}] * 2
    for version in (2, 8, 9):
        request = _request("offset_commit", version, group_id="g", member_id="m", topics=topics)
        assert checked("offset_commit", version, b"before" + request, 6)[6:] == request
    produced = [{"name": "t", "partition_data": [{"index": 0, "records": bytes(100_000)}]}]
    for version in (3, 9):
        request = _request("produce", version, transactional_id="id", topic_data=produced)
        assert checked("produce", version, request, 0) == request


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, b"\x7f\xff\xff\xff"),
        (1, b"\0\0\0\2" + b"\0\1a"),
        (1, b"\xff\xff\xff\xfe"),
        (1, b"\0\0\0\1" + b"\x7f\xffa"),
        (9, b"\xff\xff\xff\xff\x0f" + bytes(30)),
        (9, b"\x80\x80\x80\x80\x80\x01" + bytes(30)),
        (9, b"\x02" + b"\xff\xff\x03a"),
        (9, b"\0" + FLAGS_OF_METADATA_9 + ONE_TAG + b"\0" + b"\x7f"),
        (9, b"\0" + FLAGS_OF_METADATA_9 + b"\x7f"),
    ],
    ids=["2 GiB of topics", "one topic missing", "count -2", "32 KiB name", "4 billion topics", "endless number",
         "64 KiB name", "long tag", "127 tags"],
)  # fmt: skip
def test_what_claims_more_than_it_holds_is_refused(version: int, body: bytes) -> None:
    with pytest.raises(BadRequest):
        checked("metadata", version, body, 0)


def test_null_stands_only_where_it_may() -> None:
    assert checked("metadata", 9, b"\0" + FLAGS_OF_METADATA_9 + NO_TAGS, 0)
    with pytest.raises(BadRequest):
        checked("heartbeat", 4, b"\0" + bytes(4) + b"\1\0" + NO_TAGS, 0)
    assert checked("heartbeat", 4, b"\1" + bytes(4) + b"\1\0" + NO_TAGS, 0)
    with pytest.raises(BadRequest):
        checked("txn_offset_commit", 2, _request("txn_offset_commit", 2)[:-4] + b"\xff\xff\xff\xff", 0)


def test_items_are_bounded_over_all_arrays_of_a_request() -> None:
    topics = [{"name": "t", "partition_indexes": list(range(10))}] * 10
    request = _request("offset_fetch", 5, group_id="g", topics=topics)
    assert check_request("offset_fetch", 5, request, 0, items_max=110) == (request, 110)
    assert check_request("offset_fetch", 5, request, 0, items_max=200) == (request, 110)
    with pytest.raises(BadRequest, match="items"):
        checked("offset_fetch", 5, request, 0, items_max=109)


def test_unknown_tagged_fields_are_left_out_wherever_they_stand() -> None:
    topic = b"\x02a"
    unknown = b"\x02" + b"\x07\x03abc" + b"\x09\x00"
    plain = b"\x03" + topic + NO_TAGS + topic + NO_TAGS + FLAGS_OF_METADATA_9 + NO_TAGS
    tagged = b"\x03" + topic + unknown + topic + NO_TAGS + FLAGS_OF_METADATA_9 + unknown
    assert checked("metadata", 9, tagged, 0) == plain


def test_unknown_tagged_fields_count_as_items_and_cost_nothing_each() -> None:
    """Sixty-four in each of twenty thousand topics were four megabytes of the wire, and 378 MiB of memory."""
    unknown = bytes([TAGS_MAX]) + b"".join(bytes([0x20 + number, 1]) + b"z" for number in range(TAGS_MAX))
    end = FLAGS_OF_METADATA_9 + NO_TAGS
    tagged = bytes([3]) + (b"\x02a" + unknown) * 2 + end
    assert check_request("metadata", 9, tagged, 0, 130) == (bytes([3]) + (b"\x02a" + NO_TAGS) * 2 + end, 130)
    with pytest.raises(TooManyItems):
        check_request("metadata", 9, tagged, 0, 129)
    many = b"\xa1\x9c\x01" + (b"\x02a" + unknown) * 20_000 + end
    tracemalloc.start()
    try:
        with pytest.raises(TooManyItems):
            check_request("metadata", 9, many, 0)
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()


def test_unknown_tagged_fields_are_left_out_around_known_ones() -> None:
    request = _request("fetch", 12, cluster_id="c", topics=[])
    known = b"\x00\x02\x02c"
    assert request.endswith(b"\x01" + known)
    for unknown in (b"\x0b\x01x", b"\x0b\x01x" + b"\x0c\x00"):
        count = 1 if len(unknown) == 3 else 2
        for before, after in ((b"", unknown), (unknown, b""), (unknown, unknown)):
            tags = bytes([1 + count * (bool(before) + bool(after))])
            assert checked("fetch", 12, request[: -len(known) - 1] + tags + before + known + after, 0) == request


def test_known_tagged_fields_stay_and_must_be_as_long_as_they_say() -> None:
    request = _request("fetch", 12, cluster_id="c", topics=[])
    assert b"\x01\x00\x02\x02c" in request, "one tag, number 0, of two bytes"
    assert checked("fetch", 12, request, 0) == request
    with pytest.raises(BadRequest):
        checked("fetch", 12, request.replace(b"\x01\x00\x02\x02c", b"\x01\x00\x01\x02c"), 0)


@pytest.mark.parametrize(
    ("frame", "flexible", "expected"),
    [
        (bytes(8) + b"\0\2me", False, ("me", 12)),
        (bytes(8) + b"\xff\xff", False, ("", 10)),
        (bytes(8) + b"\0\2me" + NO_TAGS, True, ("me", 13)),
        (bytes(8) + b"\0\2me" + ONE_TAG + b"\x05\x01x", True, ("me", 16)),
    ],
)
def test_headers(frame: bytes, flexible: bool, expected: tuple[str, int]) -> None:
    assert read_header(frame, flexible) == expected


@pytest.mark.parametrize("rest", [b"", b"\0", b"\0\3me", b"\xff\xfe", b"\0\2me" + ONE_TAG, b"\0\1\xff" + NO_TAGS])
def test_bad_headers(rest: bytes) -> None:
    with pytest.raises(ValueError, match=r"ends too early|longer than|decode"):
        read_header(bytes(8) + rest, True)
