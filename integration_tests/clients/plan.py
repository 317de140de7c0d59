"""What the program of every client family has to do, and what has to be on the broker afterwards.

A program creates both topics (two partitions each), then
- writes one stage of records into partition 0 for each codec, and one more as an idempotent producer;
- writes transactions into partition 1, one stage each, and commits or aborts them as `rounds` say; a producer that was
  initialised under the same transactional id before must be refused from then on;
- reads all of it as a member of `group`, read_committed, commits its offsets and looks them up;
- looks up offsets by time: that of a record in the middle of partition 0, and one after its last record;
- as a member of `copier` copies everything in upper case into `output`, partition by partition, with the offsets in the
  same transaction; the first of these transactions is aborted, and done again from the committed offsets.

What it saw goes into a `Report`. It is compared with what was committed, and with what librdkafka sees there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Message

from integration_tests.harness import clients, wire
from integration_tests.harness.batches import CONTROL, HEADER
from integration_tests.harness.wire import MILLISECOND

IDEMPOTENT = "idempotent"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""By their numbers in a batch's attributes."""
CODEC_BITS = 0x07


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a program is told; in Go as JSON."""

    bootstrap: str
    topic: str
    output: str
    group: str
    copier: str
    transactional_id: str
    codecs: Sequence[str] = CODECS
    each: int = 20
    rounds: Sequence[bool] = (True, False, False, True)

    def json(self) -> str:
        """All fields, the values of all stages and the total, for programs in other languages."""
        values = {name: self.values(name) for name in [*self.stages(0), *self.stages(1)]}
        return json.dumps({**asdict(self), "total": self.total(), "values": values})

    def stages(self, partition: int) -> list[str]:
        """Names of what is written into a partition of `topic`, in order."""
        if partition == 0:
            return [*self.codecs, IDEMPOTENT]
        return [stage(number) for number in range(len(self.rounds))]

    def values(self, stage: str) -> list[str]:
        """The records' values of a stage. Codecs have something to do: clients send what doesn't shrink as it is."""
        return [f"{stage} {number} {'.' * 80}" for number in range(self.each)]

    def written(self, partition: int) -> list[str]:
        """All values of a partition of `topic`, with those that were aborted."""
        return [value for name in self.stages(partition) for value in self.values(name)]

    def committed(self, partition: int) -> list[str]:
        """The same without what was aborted."""
        if partition == 0:
            return self.written(0)
        kept = [stage(number) for number, commit in enumerate(self.rounds) if commit]
        return [value for name in kept for value in self.values(name)]

    def total(self) -> int:
        """How many records a read_committed reader of the topic gets."""
        return len(self.committed(0)) + len(self.committed(1))


def stage(round_: int) -> str:
    """The name of a transaction's records."""
    return f"round{round_}"


class ReadRecord(NamedTuple):
    """A record as a program read it."""

    partition: int
    offset: int
    timestamp_ms: int
    value: str


@dataclass(slots=True)
class Report:
    """What a program saw.

    Attributes:
        read: in the order in which it came.
        committed: the group's offset of each partition.
        by_time: time asked for in milliseconds → offset in partition 0, None if there is none.
        copied: what the output has for a read_committed reader.
        fenced: whether the older producer was refused; None if the client has no such thing, and no copy either.
    """

    read: list[ReadRecord] = field(default_factory=list)
    committed: dict[int, int] = field(default_factory=dict)
    by_time: dict[int, int | None] = field(default_factory=dict)
    copied: list[ReadRecord] = field(default_factory=list)
    fenced: bool | None = None

    @classmethod
    def of_json(cls, text: str) -> Report:
        """From the names of the fields; JSON's keys are strings."""
        found: dict[str, Any] = json.loads(text)
        return cls(
            read=[ReadRecord(*each) for each in found["read"]],
            committed={int(partition): offset for partition, offset in found["committed"].items()},
            by_time={int(time_ms): offset for time_ms, offset in found["by_time"].items()},
            copied=[ReadRecord(*each) for each in found["copied"]],
            fenced=found["fenced"],
        )

    def ask_times(self) -> tuple[int, int]:
        """The two times to look up: a record's in the middle of partition 0, and the first after the last record."""
        times = [each.timestamp_ms for each in self.read if each.partition == 0]
        return times[len(times) // 2], max(times) + 1


def check(plan: Plan, report: Report) -> None:
    """Raises AssertionError where the report, the plan and the broker differ."""
    for partition in (0, 1):
        stored = clients.read(plan.bootstrap, plan.topic, partition)
        assert _texts(stored) == plan.committed(partition)
        assert _of(report.read, partition) == [_read_record(message) for message in stored]
        everything = clients.read(plan.bootstrap, plan.topic, partition, isolation="read_uncommitted")
        assert _texts(everything) == plan.written(partition)
        _check_offset(plan, plan.group, partition, stored[-1], report.committed)
    _check_codecs(plan)
    _check_times(plan, report.by_time)
    if report.fenced is not None:
        assert report.fenced, "the older producer was not refused"
        _check_copy(plan, report)


def _check_offset(plan: Plan, group: str, partition: int, last: Message, seen: Mapping[int, int] | None) -> None:
    """The group's offset is behind the last committed record, and the program was told the same."""
    at = clients.committed(plan.bootstrap, group, plan.topic, partition).offset
    assert seen is None or seen[partition] == at
    assert at > (last.offset() or 0)
    assert clients.read(plan.bootstrap, plan.topic, partition, at) == []


def _check_codecs(plan: Plan) -> None:
    """Every batch is stored with the codec of its stage; a stage is a producer's, so no batch is of two."""
    expected = [*(CODECS.index(codec) for codec in plan.codecs), CODECS.index("none")]
    stages = set()
    for base_offset, attributes in batches(plan.bootstrap, plan.topic, 0):
        assert not attributes & CONTROL
        number = base_offset // plan.each
        assert attributes & CODEC_BITS == expected[number], f"batch at offset {base_offset}"
        stages.add(number)
    assert stages == set(range(len(expected)))


def _check_times(plan: Plan, by_time: Mapping[int, int | None]) -> None:
    stored = [_read_record(message) for message in clients.read(plan.bootstrap, plan.topic, 0)]
    expected = {
        asked_ms: next((each.offset for each in stored if each.timestamp_ms >= asked_ms), None) for asked_ms in by_time
    }
    assert by_time == expected
    assert None in expected.values()
    assert set(expected.values()) != {None}


def _check_copy(plan: Plan, report: Report) -> None:
    for partition in (0, 1):
        stored = clients.read(plan.bootstrap, plan.output, partition)
        assert _texts(stored) == [value.upper() for value in plan.committed(partition)]
        assert _of(report.copied, partition) == [_read_record(message) for message in stored]
        last = clients.read(plan.bootstrap, plan.topic, partition)[-1]
        _check_offset(plan, plan.copier, partition, last, None)
    everything = [clients.read(plan.bootstrap, plan.output, each, isolation="read_uncommitted") for each in (0, 1)]
    assert sum(map(len, everything)) > plan.total(), "no copy was aborted"


def batches(bootstrap: str, topic: str, partition: int) -> Iterator[tuple[int, int]]:
    """Base offset and attributes of every batch that is stored."""
    with wire.connected(bootstrap) as connection:
        partitions = [{"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
        answer = connection(
            "fetch",
            11,
            max_wait=1_000 * MILLISECOND,
            min_bytes=1,
            topics=[{"topic": topic, "partitions": partitions}],
            forgotten_topics_data=[],
        )
    records, at = bytes(answer.responses[0].partitions[0].records), 0
    while at < len(records):
        base_offset, size, _, _, _, attributes, *_ = HEADER.unpack_from(records, at)
        yield base_offset, attributes
        at += 12 + size


def _of(seen: Sequence[ReadRecord], partition: int) -> list[ReadRecord]:
    return [each for each in seen if each.partition == partition]


def _read_record(message: Message) -> ReadRecord:
    return ReadRecord(
        message.partition() or 0, message.offset() or 0, message.timestamp()[1], (message.value() or b"").decode()
    )


def _texts(messages: Sequence[Message]) -> list[str]:
    return [(message.value() or b"").decode() for message in messages]
