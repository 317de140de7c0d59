"""An error has a place in the response of every API and version, and the response can be written."""

from __future__ import annotations

import dataclasses
import io
import typing
import uuid
from types import NoneType
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from embedded_broker.api.registry import load_all
from embedded_broker.testing.error_answers import error_answer
from embedded_broker.wire import schema

EVERY = [(api.name, version) for _, api in sorted(load_all().items()) for version in api.versions]
ERROR = ErrorCode.kafka_storage_error


def one_of_each(kind: Any) -> dict[str, Any]:
    """Fields of a request in which every list has one item."""
    hints = typing.get_type_hints(kind)
    return {
        field.name: value
        for field in dataclasses.fields(kind)
        if (value := _one(hints[field.name], field.name)) is not None
    }


def _one(hint: Any, name: str) -> Any:
    inner = [part for part in typing.get_args(hint) if part is not NoneType]
    if typing.get_origin(hint) is not tuple and inner:
        hint = inner[0]
    if typing.get_origin(hint) is tuple:
        return [_one(typing.get_args(hint)[0], name)]
    if dataclasses.is_dataclass(hint):
        return one_of_each(hint)
    if not isinstance(hint, type) or hint is ErrorCode:
        return None
    if issubclass(hint, bool):
        return True
    if issubclass(hint, int):
        return 7
    if issubclass(hint, str):
        return f"a-{name}"
    return uuid.UUID(int=5) if issubclass(hint, uuid.UUID) else None


def request(name: str, version: int, **fields: Any) -> Any:
    kind = schema.entity(name, version, "request")
    return schema.builder(kind)(fields or one_of_each(kind))


def codes(answer: Any) -> list[ErrorCode]:
    if isinstance(answer, ErrorCode):
        return [answer]
    if isinstance(answer, dict):
        return [code for value in answer.values() for code in codes(value)]
    return [code for value in answer for code in codes(value)] if isinstance(answer, list) else []


@pytest.mark.tier("default")
@pytest.mark.parametrize(("name", "version"), EVERY)
def test_every_response_can_carry_the_error(name: str, version: int) -> None:
    answer = error_answer(name, version, request(name, version), ERROR)
    assert set(codes(answer)) == {ERROR}
    codec, out = schema.load(name, version), io.BytesIO()
    codec.write(out, codec.build(answer))
    assert out.getvalue()


def test_each_partition_is_named_as_it_was_asked_for() -> None:
    topics = [{"name": "a", "partition_data": [{"index": 3}, {"index": 1}]}, {"name": "b", "partition_data": []}]
    asked = request("produce", 9, acks=-1, timeout=1, topic_data=topics)
    first, second = error_answer("produce", 9, asked, ERROR)["responses"]
    assert (first["name"], [each["index"] for each in first["partition_responses"]]) == ("a", [3, 1])
    assert {each["base_offset"] for each in first["partition_responses"]} == {-1}
    assert second == {"name": "b", "partition_responses": []}


def test_names_differ_between_request_and_response() -> None:
    asked = request("fetch", 11, topics=[{"topic": "a", "partitions": [{"partition": 2}]}])
    answer = error_answer("fetch", 11, asked, ERROR)
    assert answer["error_code"] is ERROR
    assert answer["responses"][0]["topic"] == "a"
    assert answer["responses"][0]["partitions"][0]["partition_index"] == 2


def test_bare_numbers_and_names_become_items() -> None:
    topics = [{"name": "a", "partitions": [4]}]
    asked = request("add_partitions_to_txn", 3, v3_and_below_topics=topics, v3_and_below_producer_id=9)
    (topic,) = error_answer("add_partitions_to_txn", 3, asked, ERROR)["results_by_topic_v3_and_below"]
    assert topic["name"] == "a"
    assert topic["results_by_partition"] == [{"partition_index": 4, "partition_error_code": ERROR}]
    asked = request("delete_groups", 2, groups_names=["g", "h"])
    assert [each["group_id"] for each in error_answer("delete_groups", 2, asked, ERROR)["results"]] == ["g", "h"]


def test_partitions_taken_out_of_a_fetch_session_get_no_answer() -> None:
    forgotten = [{"topic": "a", "partitions": [0]}]
    answer = error_answer("fetch", 11, request("fetch", 11, topics=[], forgotten_topics_data=forgotten), ERROR)
    assert answer["responses"] == []
