"""Committed positions as the client library returns them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from replicator.config import load_text
from replicator.kafka.offset_reader import OffsetReader
from replicator.model.checkpoint import Unreadable
from replicator.model.partition import Partition

FILE = """
clusters:
  a: {properties: {bootstrap.servers: "a:1"}}
  b: {properties: {bootstrap.servers: "b:1"}}
flows:
  f: {source: a, target: b, topics: [t]}
"""
AT = Partition("t", 0)


class Answer(SimpleNamespace):
    """A committed offset behind whose metadata there is no zero byte: it is read on into what isn't text."""

    topic, partition, offset, error = "t", 0, 7, None

    @property
    def metadata(self) -> str:
        return b"{\xff".decode()


def test_metadata_that_is_no_text_is_a_position_that_cant_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = OffsetReader(load_text(FILE, env={}).flows["f"])
    monkeypatch.setattr(reader._offsets, "ask", lambda partitions: [cast(Any, Answer())])
    found = reader.positions([AT])[AT]
    assert isinstance(found, Unreadable)
    assert (found.offset, found.incident) == (7, "position_unreadable")
