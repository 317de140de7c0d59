"""`incident resolve --set-aside` of a record that the client can't read: a stub is kept, and the flow goes on."""

from __future__ import annotations

import random

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.two_topics import TwoTopics
from integration_tests.test_incident_resolve import WHY, asked, open_id

MIB = 1 << 20


@pytest.mark.tier("full")
def test_a_record_that_is_too_large_to_be_read_is_set_aside_as_a_stub(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1, source_configs={"max.message.bytes": str(64 * MIB)}))
    path = two.flow.file.path
    clients.create_topic(two.target, two.copy_of(two.first), 1)
    writer = clients.producer(two.source, message_max_bytes=64 * MIB, message_timeout_ms=60_000)
    for value in (b"one", random.Random(2).randbytes(20 * MIB), b"two"):
        clients.put(writer, two.first, value, key=b"key")
    worker = two.flow.running()
    id_ = open_id(path, "record_too_large", worker)
    code, done, said = asked(path, "resolve", id_, "--set-aside", "--why", WHY)
    assert (code, done["acted"], done["moved"], done["kept"]) == (0, "set-aside", [1, 2], "stub"), said
    two.wait_copied(two.first, b"two")
    assert two.values(two.first) == [b"one", b"two"]
    (kept,) = clients.read(two.target, f"__eos.{two.name}.aside")
    assert (kept.key(), kept.value(), dict(kept.headers() or ())["eos.kept"]) == (None, None, b"stub")
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)
