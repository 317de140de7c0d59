"""`adopt-mm2` after a real MirrorMaker 2, exactly once and at least once, stopped and killed: nothing is left out, and
we copy nothing again. What can't be told is refused, and nothing is written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import replicator
from integration_tests.harness import clients, java
from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.embedded import EmbeddedBroker
from integration_tests.harness.kafka_container import KafkaContainer, need_kafka
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import FAILPOINTS, FlowFile, Replicator
from replicator.offset_map.translate import TranslatedOffset

pytestmark = [pytest.mark.tier("full"), pytest.mark.timeout(900)]
ADOPTED_S_MAX = 90
REFUSED, WRONG = 1, 2
PARTITIONS = 2
OFFSETS = "mm2-offsets.a.internal"
KILLED = ("b.offset.flush.interval.ms=600000", "b.producer.transaction.timeout.ms=10000")
"""At least once, it notes its offsets only when it is stopped; and what it leaves open ends soon."""


class Takeover:
    """A topic `t` that MirrorMaker 2 copies to `a.t`, and a flow that is to go on there."""

    def __init__(self, directory: Path, source: str, target: str) -> None:
        self.source, self.target = source, target
        clients.create_topic(source, "t", PARTITIONS)
        self.file = FlowFile(directory, "orders", source, target, topics=["t"], rename="a.{topic}")
        self._written = 0

    def write(self, count: int = 100) -> None:
        """Records that no others equal, to each partition, each hundred of them in a transaction or aborted."""
        writer = clients.transactional(self.source, "writer")
        for number in range(PARTITIONS):
            for kept in (True, False, True):
                writer.begin_transaction()
                values = [b"%d-%d" % (self._written, it) for it in range(count)]
                clients.put(writer, "t", *values, partition=number, headers=[("h", b"x")])
                (writer.commit_transaction if kept else writer.abort_transaction)(clients.TIMEOUT_S)
                self._written += 1

    def values(self, bootstrap: str, topic: str, number: int) -> list[bytes | None]:
        """What a read_committed reader finds."""
        return clients.values(clients.read(bootstrap, topic, number)) if topic in clients.topics(bootstrap) else []

    def wait_copied(self, mirror: java.MirrorMaker) -> None:
        """Until the last record of each partition is on the target."""

        def copied() -> bool:
            return all(
                self.values(self.source, "t", number)[-1] in self.values(self.target, "a.t", number)
                for number in range(PARTITIONS)
            )

        wait_until(copied, "MirrorMaker 2 has copied everything", mirror.log_tail)

    def adopt(self, *words: str, step: str = "") -> tuple[int, dict[str, Any], str]:
        """Exit code, JSON and stderr. `step`: where it is killed."""
        command = [sys.executable, "-m", "cli.main", "adopt-mm2", "-c", str(self.file.path), "--json", *words]
        environment = {**os.environ, FAILPOINTS: f"{step}@1=kill" if step else ""}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ADOPTED_S_MAX, env=environment
        )
        return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr

    def rehearse(self, *words: str) -> dict[str, Any]:
        """A dry run that succeeds, once the group of MirrorMaker 2 is empty and nothing is open."""
        found: dict[str, Any] = {}
        said = ""

        def ready() -> bool:
            nonlocal found, said
            code, found, said = self.adopt("--dry-run", *words)
            assert code == 0 or "has 1 member:" in said or "is open" in said, said
            return code == 0

        wait_until(ready, "MirrorMaker 2 is gone", lambda: said)
        return found

    def assert_untouched(self) -> None:
        """Nothing of the flow is on the target."""
        assert [name for name in clients.topics(self.target) if "eos" in name] == []

    def assert_goes_on(self) -> None:
        """The flow copies exactly what MirrorMaker 2 has not."""
        before = [self.values(self.target, "a.t", number) for number in range(PARTITIONS)]
        worker = Replicator(self.file)
        try:
            for number in range(PARTITIONS):
                (*_, last) = self.values(self.source, "t", number)
                assert last is not None
                clients.wait_value(self.target, "a.t", number, last)
            assert worker.stop() == 0, worker.tail()
        finally:
            worker.close()
        for number in range(PARTITIONS):
            here, there = self.values(self.source, "t", number), self.values(self.target, "a.t", number)
            ours = there[len(before[number]) :]
            assert there[: len(before[number])] == before[number]
            assert Counter(ours) == Counter(here) - Counter(before[number]), "left out, or copied again by us"
            assert ours == here[len(here) - len(ours) :]
            assert set(here) == set(there)


def brokers(kind: Kind, directory: Path) -> list[BrokerHandle]:
    if kind == "kafka":
        return [KafkaContainer(), KafkaContainer()]
    return [EmbeddedBroker(directory / "source"), EmbeddedBroker(directory / "target")]


@pytest.fixture
def takeover(kind: Kind, tmp_path: Path) -> Iterator[Takeover]:
    need_kafka()
    both = brokers(kind, tmp_path)
    try:
        for each in both:
            each.start()
        yield Takeover(tmp_path, *(each.bootstrap for each in both))
    finally:
        for each in both:
            each.stop()


def mirror(directory: Path, takeover: Takeover, exactly_once: bool) -> java.MirrorMaker:
    return java.MirrorMaker(
        directory, takeover.source, takeover.target, "t", exactly_once=exactly_once, settings=KILLED
    )


@pytest.mark.parametrize("ends", [pytest.param("stopped", marks=pytest.mark.tier("long")), "killed"])
@pytest.mark.parametrize(
    "exactly_once",
    [pytest.param(True, id="exactly_once"), pytest.param(False, id="at_least_once", marks=pytest.mark.tier("long"))],
)
@pytest.mark.tier(kafka="long")
def test_the_flow_goes_on_where_it_has_ended(takeover: Takeover, tmp_path: Path, exactly_once: bool, ends: str) -> None:
    with mirror(tmp_path, takeover, exactly_once) as other:
        takeover.write()
        takeover.wait_copied(other)
        other.kill()  # what it copies again when it ran at least once, it has copied twice
        other.restart()
        takeover.write()
        takeover.wait_copied(other)
        offsets = ("--connect-offsets", OFFSETS) if exactly_once else ("--alias", "a")  # not noted before it is stopped
        code, _, said = takeover.adopt(*offsets, "--yes-i-mean", "orders")
        assert (code, "has 1 member: stop it" in said) == (REFUSED, True), said
        (other.terminate if ends == "stopped" else other.kill)()
        takeover.write()
        if ends == "stopped":
            offsets = ("--connect-offsets", OFFSETS)
        found = takeover.rehearse(*offsets)
        takeover.assert_untouched()
        assert any(row["doubled"] for row in found["partitions"]) is not exactly_once
        code, done, said = takeover.adopt(*offsets, "--yes-i-mean", "orders")
        assert code == 0, said
        assert [row["position"] for row in done["partitions"]] == [row["position"] for row in found["partitions"]]
        assert_named_as_adopted(takeover, done)
        code, _, said = takeover.adopt(*offsets, "--yes-i-mean", "orders")
        assert (code, "has begun to copy t[0], t[1]" in said) == (REFUSED, True), said
        takeover.assert_goes_on()


def assert_named_as_adopted(takeover: Takeover, done: dict[str, Any]) -> None:
    """`position show` says whose decision the positions rest on."""
    command = [sys.executable, "-m", "cli.main", "position", "show", "-c", str(takeover.file.path), "--json"]
    (shown,) = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["flows"]
    assert [(row["partition"], row["offset"], row["incident"]) for row in shown["adoptions"]] == [
        (row["partition"], row["position"], "adopt_mm2") for row in done["partitions"]
    ]
    for row, adopted in zip(done["partitions"], shown["adoptions"], strict=True):
        assert ("more than once" in adopted["doubled"]) is bool(row["doubled"])


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Takeover]:
    """What a MirrorMaker 2 would have copied, written by hand; it isn't there any more."""
    both = brokers("embedded", tmp_path)
    try:
        for each in both:
            each.start()
        made = Takeover(tmp_path, *(each.bootstrap for each in both))
        clients.create_topic(made.target, "a.t", PARTITIONS)
        clients.create_topic(made.target, OFFSETS, configs={"cleanup.policy": "compact"})
        yield made
    finally:
        for each in both:
            each.kill()


def copy(takeover: Takeover, values: list[bytes], there: list[bytes]) -> None:
    """The same records on both sides, all at one time."""
    clients.put(clients.producer(takeover.source), "t", *values, timestamp=1_000)
    clients.put(clients.producer(takeover.target), "a.t", *there, timestamp=1_000)


def note(takeover: Takeover, offset: int, connector: str = "MirrorSourceConnector") -> None:
    """An offset of Kafka Connect."""
    key = json.dumps([connector, {"cluster": "a", "partition": 0, "topic": "t"}]).encode()
    clients.put(clients.producer(takeover.target), OFFSETS, json.dumps({"offset": offset}).encode(), key=key)


def equal_records(takeover: Takeover) -> None:
    copy(takeover, [b"same"] * 10, [b"same"] * 4)


def of_another_topic(takeover: Takeover) -> None:
    copy(takeover, [b"new %d" % number for number in range(10)], [b"old %d" % number for number in range(4)])


def contradicted(takeover: Takeover) -> None:
    copy(takeover, [b"%d" % number for number in range(10)], [b"%d" % number for number in range(4)])
    note(takeover, 8)


def another_connector(takeover: Takeover) -> None:
    copy(takeover, [b"%d" % number for number in range(10)], [b"%d" % number for number in range(4)])
    note(takeover, 3, "jdbc")


def nothing_there(takeover: Takeover) -> None:
    copy(takeover, [b"%d" % number for number in range(10)], [])
    note(takeover, 3)


def open_transaction(takeover: Takeover) -> None:
    copy(takeover, [b"%d" % number for number in range(10)], [b"%d" % number for number in range(4)])
    writer = clients.transactional(takeover.target, "left-open")
    writer.begin_transaction()
    clients.put(writer, "a.t", b"4")


def somebody_elses(takeover: Takeover) -> None:
    copy(takeover, [b"%d" % number for number in range(10)], [b"0", b"1", b"foreign", b"2"])


def left_out(takeover: Takeover) -> None:
    copy(takeover, [b"%d" % number for number in range(10)], [b"0", b"1", b"5", b"6"])


def gone_at_the_source(takeover: Takeover) -> None:
    copy(takeover, [b"%d" % number for number in range(10)], [b"%d" % number for number in range(4)])
    clients.delete_records(takeover.source, "t", 0, 6)
    note(takeover, 3)


@pytest.mark.parametrize(
    ("prepared", "words", "code", "said"),
    [
        (equal_records, (), REFUSED, "equal records stand at several offsets"),
        (of_another_topic, (), REFUSED, "no record like that at target offset 3, which is the last one"),
        (contradicted, ("--connect-offsets", OFFSETS), REFUSED, "offset 8 was copied, and the records of a.t[0] end"),
        (another_connector, ("--connect-offsets", OFFSETS), WRONG, "no offsets of connector MirrorSourceConnector"),
        (nothing_there, ("--connect-offsets", OFFSETS), REFUSED, "a.t[0] has no record"),
        (open_transaction, (), REFUSED, "a transaction is open in a.t[0]"),
        (somebody_elses, (), REFUSED, "offset 2, which stands among copies"),
        (left_out, (), REFUSED, "the copy at target offset 2 doesn't follow those before it"),
        (gone_at_the_source, ("--connect-offsets", OFFSETS, "--trust-offsets"), REFUSED, "can't go on at 4"),
        (equal_records, ("--connect-offsets", "nothing"), WRONG, "has no topic nothing"),
        (equal_records, ("--trust-offsets",), WRONG, "there are none without --connect-offsets"),
    ],
)
def test_what_can_not_be_told_is_refused_and_nothing_is_written(
    copied: Takeover, prepared: Callable[[Takeover], None], words: tuple[str, ...], code: int, said: str
) -> None:
    prepared(copied)
    found, _, told = copied.adopt("--yes-i-mean", "orders", *words)
    assert (found, said in told) == (code, True), told
    copied.assert_untouched()


def test_equal_records_are_taken_by_offsets_that_are_trusted(copied: Takeover) -> None:
    equal_records(copied)
    note(copied, 3)
    code, found, said = copied.adopt("--yes-i-mean", "orders", "--connect-offsets", OFFSETS, "--trust-offsets")
    assert code == 0, said
    (row,) = found["partitions"]
    assert (row["position"], row["compared"]) == (4, None)
    assert found["empty"] == [{"topic": "t", "partition": 1}]


@pytest.mark.tier("long", kafka="long")
def test_equal_records_that_stand_further_on_are_not_taken_for_copied(copied: Takeover) -> None:
    """Killed, it has copied the last two again; such records, and the one before them, stand at the end, too."""
    here, there = "uabcabXYZbab", "uabcabab"
    copy(copied, [letter.encode() for letter in here], [letter.encode() for letter in there])
    code, found, said = copied.adopt("--yes-i-mean", "orders")
    assert code == 0, said
    (row,) = found["partitions"]
    assert (row["position"], row["next_source_offset"], row["doubled"]) == (6, 6, [[4, 6]])


@pytest.mark.parametrize(
    "step", ["position_set_opened", "before_position_set", "before_end_position_set", "after_position_set"]
)
def test_killed_at_any_step_it_has_adopted_all_or_nothing(copied: Takeover, step: str) -> None:
    values = [b"%d" % number for number in range(10)]
    for number, there in ((0, 4), (1, 7)):
        clients.put(clients.producer(copied.source), "t", *values, partition=number, timestamp=1_000)
        clients.put(clients.producer(copied.target), "a.t", *values[:there], partition=number, timestamp=1_000)
    assert copied.adopt("--yes-i-mean", "orders", step=step)[0] == -signal.SIGKILL
    code, _, said = copied.adopt("--yes-i-mean", "orders")
    assert code == (REFUSED if step == "after_position_set" else 0), said
    copied.assert_goes_on()


def test_no_offset_of_what_it_has_copied_is_translated(copied: Takeover) -> None:
    """The flow's map doesn't tell where these copies stand: a consumer that went on behind them would skip some."""
    values = [b"%d" % number for number in range(10)]
    clients.put(clients.producer(copied.source), "t", *values, partition=0, timestamp=1_000)
    clients.put(clients.producer(copied.target), "a.t", *values[:4], partition=0, timestamp=1_000)
    code, _, said = copied.adopt("--yes-i-mean", "orders")
    assert code == 0, said
    file, flow = copied.file.path, copied.file.flow
    first, last, after = replicator.translate(file, flow, [("t", 0, offset) for offset in (0, 3, 4)])
    assert first.translated == last.translated == TranslatedOffset(None, None, ("before_map",), (0, 4))
    assert after.translated == TranslatedOffset(4, 0)
    (back,) = replicator.translate(file, flow, [("a.t", 0, 2)], reverse=True)
    assert back.translated == TranslatedOffset(None, None, ("before_map",), (0, 4))


def test_its_own_topics_must_be_excluded(copied: Takeover) -> None:
    clients.create_topic(copied.source, "mm2-offset-syncs.b.internal")
    copied.file.write(topics=["^.*"])
    code, _, said = copied.adopt("--dry-run")
    assert (code, "exclude MirrorMaker 2's own topics: mm2-offset-syncs.b.internal" in said) == (WRONG, True)
