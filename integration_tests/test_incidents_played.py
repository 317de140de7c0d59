"""Incidents as docs/operate/incidents.md has them: provoked, then what is written there is typed, and the flow goes on.

`incidents_played` says where each kind is played; those that aren't here are in other files.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from contextlib import closing
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients, raw
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.copying import ASKED_S_MAX, Copying
from integration_tests.harness.kafka_container import KafkaContainer
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import Replicator
from integration_tests.harness.two_topics import TwoTopics, numbered
from replicator import config
from replicator.model.partition import Partition
from replicator.model.transactions import Marker
from replicator.wire.open_transactions import WireOpenTransactions

pytestmark = pytest.mark.tier("full")

WHY = "as docs/operate/incidents.md says"
HOUR_MS = 3_600_000
NOW_MS = time.time_ns() // 1_000_000
LARGE = random.Random(1).randbytes(9_000)
"""Compression doesn't help."""


def asked(copying: Copying, *words: str) -> tuple[int, dict[str, Any], str]:
    """Exit code of a command, its JSON, if it has any, and what it says on stderr."""
    command = [sys.executable, "-m", "cli.main", *words, "-c", str(copying.file.path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ASKED_S_MAX)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def open_id(copying: Copying, name: str, topic: str, worker: Replicator) -> str:
    """The id of what is open of a topic, once a lane has written it down."""
    found: list[str] = []

    def there() -> bool:
        listed = asked(copying, "incident", "list")[1]["incidents"]
        found[:] = [it["id"] for it in listed if (it["name"], it["topic"]) == (name, topic) and it["commands"]]
        return bool(found)

    wait_until(there, f"{name} of {topic} is listed", worker.tail)
    return found[0]


def resolved(copying: Copying, id_: str, command: str, acted: str) -> dict[str, Any]:
    """What `incident resolve` says of an incident that a running flow acts on."""
    code, done, said = asked(copying, "incident", "resolve", id_, command, "--why", WHY)
    assert (code, done["acted"]) == (0, acted), said
    return done


def values(copying: Copying, topic: str) -> list[bytes | None]:
    """What a reader of the copy sees."""
    return clients.values(clients.read(copying.target, f"{topic}.copy"))


class OneRecord:
    """A topic of a flow whose third record can't be copied."""

    def __init__(self, copying: Copying, name: str, bad: Any, target: dict[str, str] | None = None) -> None:
        """`bad`: a record as `raw` writes them. `target`: configs of the target topic."""
        self.copying, self.name, self.topic, self._bad = copying, name, f"{copying.name}.{name}", bad
        clients.create_topic(copying.source, self.topic)
        if target:
            clients.create_topic(copying.target, f"{self.topic}.copy", 1, target)
        for value in (b"1", b"2"):
            self.put(value)

    def put(self, value: bytes) -> None:
        """Write one that can be copied."""
        raw.put(self.copying.source, self.topic, 0, raw.record(b"k", value, timestamp_ms=NOW_MS))

    def put_bad(self) -> None:
        """Write the one that can't be."""
        raw.put(self.copying.source, self.topic, 0, self._bad)


def test_a_record_that_cannot_be_copied_is_set_aside_or_the_target_takes_it(make_copying: MakeCopying) -> None:
    """header_not_carriable, timestamp_not_carriable, record_too_large, target_timestamp_bounds."""
    copying = make_copying(partitions=1)
    old = raw.record(b"k", b"old", timestamp_ms=NOW_MS - 2 * HOUR_MS)
    topics = [
        OneRecord(copying, "header_not_carriable", raw.record(b"k", b"bad", [(b"\xff", b"v")], timestamp_ms=NOW_MS)),
        OneRecord(copying, "timestamp_not_carriable", raw.record(b"k", b"bad", timestamp_ms=0)),
        large := OneRecord(
            copying,
            "record_too_large",
            raw.record(b"k", LARGE, timestamp_ms=NOW_MS),
            {"max.message.bytes": "3000", "message.timestamp.before.max.ms": str(2**63 - 1)},
        ),
        bounded := OneRecord(
            copying, "target_timestamp_bounds", old, {"message.timestamp.before.max.ms": str(HOUR_MS)}
        ),
    ]
    copying.file.write(topics=[f"^{copying.name}[.].*"])
    worker = copying.running()
    for one in topics:
        one.put_bad()
        one.put(b"behind")
    for one in topics:
        worker.wait_event("incident", name=one.name, topic=one.topic)
    for one in topics:
        done = resolved(copying, open_id(copying, one.name, one.topic, worker), "--set-aside", "set-aside")
        assert (done["moved"], done["kept"]) == (
            [2, 3],
            "without headers" if one.name == "header_not_carriable" else "whole",
        )
        clients.wait_value(copying.target, f"{one.topic}.copy", 0, b"behind")
    assert [values(copying, one.topic) for one in topics] == [[b"1", b"2", b"behind"]] * 4
    kept = {dict(it.headers() or ())["eos.reason"]: it.value() for it in read_aside(copying)}
    expected = {"header_not_carriable": b"bad", "timestamp_not_carriable": b"bad"}
    expected |= {"record_too_large": LARGE, "target_timestamp_bounds": b"old"}
    assert kept == {name.encode(): value for name, value in expected.items()}

    mark = worker.mark()
    for one in (large, bounded):
        one.put_bad()
        one.put(b"last")
        worker.wait_event("incident", after=mark, name=one.name, topic=one.topic)
    clients.set_topic_config(copying.target, f"{large.topic}.copy", "max.message.bytes", "1048588")
    clients.set_topic_config(copying.target, f"{bounded.topic}.copy", "message.timestamp.before.max.ms", str(2**63 - 1))
    clients.wait_value(copying.target, f"{bounded.topic}.copy", 0, b"last")  # at the next discovery
    assert worker.stop() == 4, "record_too_large needs a restart"
    worker = copying.running()
    clients.wait_value(copying.target, f"{large.topic}.copy", 0, b"last")
    assert values(copying, large.topic) == [b"1", b"2", b"behind", LARGE, b"last"]
    assert values(copying, bounded.topic) == [b"1", b"2", b"behind", b"old", b"last"]
    assert worker.stop() == 0, worker.tail()


def read_aside(copying: Copying) -> list[Any]:
    """What was set aside."""
    return clients.read(copying.target, f"__eos.{copying.name}.aside")


def test_a_damaged_batch_of_the_source_is_judged_again_once_it_is_sound(
    make_copying: MakeCopying, source: BrokerHandle
) -> None:
    """source_corrupt: another replica leads, then --retry. Here the damaged byte is mended."""
    if not isinstance(source, KafkaContainer):
        pytest.skip("the embedded broker doesn't serve a batch that it finds damaged")
    two = TwoTopics(make_copying(partitions=1))
    worker = two.running(10)
    worker.suspend()
    for value in (b"sound", b"damaged", b"behind"):
        two.put(two.first, [value])
    id_ = clients.topic_id(two.source, two.first)
    source.flip_byte(two.first, id_, 0, b"damaged")
    worker.resume()
    found = worker.wait_event("incident", name="source_corrupt", topic=two.first)
    assert found["offset"] == 11, found
    two.assert_second_goes_on()
    source.flip_byte(two.first, id_, 0, b"damaged", mend=True)
    resolved(two.flow, open_id(two.flow, "source_corrupt", two.first, worker), "--retry", "retried")
    two.wait_copied(two.first, b"behind")
    assert two.values(two.first) == [*numbered("old", 10), b"sound", b"damaged", b"behind"]
    two.assert_stops(worker, 0)


def test_a_transaction_of_somebody_else_ends_and_the_partition_is_judged_again(make_copying: MakeCopying) -> None:
    """target_transaction_open: its writer ends it, then --retry."""
    two = TwoTopics(make_copying(partitions=1, limits={"request_timeout_ms": 2_000}))
    two.assert_stops(two.running(10), 0)
    writer = clients.transactional(two.target, f"{two.name}-stranger")
    writer.begin_transaction()
    clients.put(writer, two.copy_of(two.first), b"never committed")
    two.put(two.first, numbered("unread", 3))
    worker = two.flow.running()
    found = worker.wait_event("incident", name="target_transaction_open", topic=two.first)
    assert "isn't this lane's" in found["detail"]
    two.assert_second_goes_on()
    id_ = open_id(two.flow, "target_transaction_open", two.first, worker)
    writer.abort_transaction(clients.TIMEOUT_S)
    resolved(two.flow, id_, "--retry", "retried")
    two.wait_copied(two.first, b"unread 2")
    assert two.values(two.first) == [*numbered("old", 10), *numbered("unread", 3)]
    two.assert_stops(worker, 0)


def without_its_end(two: TwoTopics, target: BrokerHandle, offset: int) -> None:
    """The copy of the first topic loses its log from an offset on, while its broker is down."""
    copy = two.copy_of(two.first)
    id_ = clients.topic_id(two.target, copy)
    target.kill()
    target.cut_log(copy, id_, 0, offset)
    target.restart()
    clients.settle(two.target, copy, 1)


def first_new(two: TwoTopics) -> int:
    """The target offset of the first copy of `new 0`."""
    found = clients.read(two.target, two.copy_of(two.first))
    return next(int(it.offset() or 0) for it in found if it.value() == b"new 0")


def copied_in_two_pieces(make_copying: MakeCopying) -> TwoTopics:
    """A flow that has stopped; its second transaction of the first topic is `new 0` to `new 4`."""
    two = TwoTopics(make_copying(partitions=1))
    worker = two.running(10)
    put_today(two, "new")
    two.wait_copied(two.first, b"new 4")
    two.assert_stops(worker, 0)
    return two


def put_today(two: TwoTopics, word: str) -> None:
    """Five records in one batch."""
    clients.put(clients.producer(two.source, **{"linger.ms": 50}), two.first, *numbered(word, 5), key=b"key")


def assert_repaired(two: TwoTopics) -> None:
    """`reconcile --local --repair apply` copies again what is missing, and the flow goes on."""
    code, found, said = asked(two.flow, "reconcile", "--local", "--repair", "apply")
    assert code == 1, f"it says what differed: {said}"
    assert sum(row["copied"] or 0 for row in found["repair"]["partitions"]) == 5, found["repair"]
    worker = two.flow.running()
    put_today(two, "later")
    two.wait_copied(two.first, b"later 4")
    assert two.values(two.first) == [*numbered("old", 10), *numbered("new", 5), *numbered("later", 5)]
    two.assert_stops(worker, 0)
    assert asked(two.flow, "reconcile", "--local")[0] in (0, 1)


def test_records_that_the_target_has_lost_are_copied_again(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """target_lost_data: `reconcile --local --repair apply`."""
    two = copied_in_two_pieces(make_copying)
    without_its_end(two, target, first_new(two))
    worker = two.flow.running()
    worker.wait_event("incident", name="target_lost_data", topic=two.first)
    two.assert_second_goes_on()
    two.assert_stops(worker)
    assert_repaired(two)


def test_records_that_an_abort_has_hidden_are_copied_again(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """target_records_hidden: the commit's marker is lost, and somebody aborts what hangs; then the repair."""
    two = copied_in_two_pieces(make_copying)
    copy = Partition(two.copy_of(two.first), 0)
    without_its_end(two, target, first_new(two) + 5)
    flow = config.load(two.flow.file.path).flows[two.name]
    with closing(WireOpenTransactions(flow, flow.target, threading.Event())) as transactions:
        (hanging,) = transactions.open_in(copy)
        transactions.end(Marker(copy, hanging, commit=False))
    assert two.values(two.first) == numbered("old", 10)
    worker = two.flow.running()
    worker.wait_event("incident", name="target_records_hidden", topic=two.first)
    two.assert_second_goes_on()
    two.assert_stops(worker)
    assert_repaired(two)


@pytest.mark.parametrize("grown", [False, True], ids=["ends below the position", "written past the position"])
@pytest.mark.parametrize("runs", [True, False])
def test_a_source_whose_log_was_cut_is_copied_on_from_there(
    make_copying: MakeCopying, source: BrokerHandle, *, runs: bool, grown: bool
) -> None:
    """source_truncated: --skip."""
    two = TwoTopics(make_copying(partitions=1))
    two.put(two.first, numbered("kept", 5))
    two.put(two.first, numbered("old", 5))
    two.put(two.second, numbered("old", 5))
    worker = two.flow.running()
    two.wait_position(two.first, 10)
    two.assert_stops(worker, 0)
    id_ = clients.topic_id(two.source, two.first)
    source.kill()
    source.cut_log(two.first, id_, 0, 5)
    source.restart()
    clients.settle(two.source, two.first, 1)
    two.put(two.first, numbered("new", 8 if grown else 2))
    worker = two.flow.running()
    found = worker.wait_event("incident", name="source_truncated", topic=two.first)
    assert found["offset"] == 10
    incident = open_id(two.flow, "source_truncated", two.first, worker)
    assert asked(two.flow, "incident", "show", incident)[1]["commands"] == ["--retry", "--skip"]
    if runs:
        assert resolved(two.flow, incident, "--skip", "adopted")["moved"] == [10, 5]
    else:
        two.assert_stops(worker)
        code, done, said = asked(two.flow, "incident", "resolve", incident, "--skip", "--why", WHY, "--wait", "0")
        assert (code, done["decision"]["end"]) == (0, 5), said
        worker = two.flow.running()
    two.put(two.first, [b"last"])
    two.wait_copied(two.first, b"last")
    new = numbered("new", 8 if grown else 2)
    assert two.values(two.first) == [*numbered("kept", 5), *numbered("old", 5), *new, b"last"]
    (adopted,) = two.status()["adoptions"]
    assert (adopted["offset"], adopted["copied_end"], adopted["incident"]) == (5, 10, "source_truncated")
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)
    assert asked(two.flow, "reconcile", "--local")[1]["verdict"] == "agrees"


@pytest.mark.tier("long")
def test_a_damaged_batch_of_the_copy_is_compared_once_it_is_sound(
    make_copying: MakeCopying, target: BrokerHandle
) -> None:
    """batch_corrupt: another replica leads, and reconcile again. Here the damaged byte is mended."""
    if not isinstance(target, KafkaContainer):
        pytest.skip("the embedded broker doesn't serve a batch that it finds damaged")
    two = TwoTopics(make_copying(partitions=1))
    two.assert_stops(two.running(10), 0)
    copy = two.copy_of(two.first)
    id_ = clients.topic_id(two.target, copy)
    target.flip_byte(copy, id_, 0, b"old 7")
    for command in (["reconcile", "--local"], ["verify"]):
        code, found, said = asked(two.flow, *command)
        assert (code, "batch_corrupt" in said or "batch_corrupt" in str(found)) == (4, True), said
    target.flip_byte(copy, id_, 0, b"old 7", mend=True)
    for command in (["reconcile", "--local"], ["verify"]):
        code, found, said = asked(two.flow, *command)
        assert code == 0, said


@pytest.mark.tier("long")
def test_a_partition_that_only_the_target_has_is_named_and_holds_up_nothing(make_copying: MakeCopying) -> None:
    """target_partition_unknown: who wrote there stops; the flow never writes there."""
    two = TwoTopics(make_copying(partitions=1))
    worker = two.running(10)
    clients.grow_topic(two.target, two.copy_of(two.first), 2)
    clients.put(clients.producer(two.target), two.copy_of(two.first), b"foreign", partition=1)
    two.put(two.first, [b"behind"])
    two.wait_copied(two.first, b"behind")
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)
    code, found, said = asked(two.flow, "reconcile", "--local")
    (unknown,) = found["not_compared"]
    assert (code, unknown["name"], unknown["partition"]) == (4, "target_partition_unknown", 1), said
    assert unknown["detail"].endswith("has offsets 0 to 1, and the source topic has no such partition")
    assert [(row["agrees"], row["source_records"]) for row in found["partitions"]] == [(True, 11), (True, 11)], found
