"""Writes the partitions that `seeded` draws to both brokers: by many producers, in transactions, with every codec; then
records are deleted from the beginning of logs, positions are committed, and the brokers' own cleaners do their work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from integration_tests.harness import clients
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import FlowFile
from integration_tests.spark.planted import Addressed, Content, open_flow
from integration_tests.spark.seeded import CODECS, SHAPES, Entry, Seeded, Shape, Step
from replicator import config
from replicator.config import Flow
from replicator.flow.topics import ControlPlane
from replicator.model import checkpoint, names
from replicator.model.checkpoint import NOBODY, Evidence
from replicator.model.partition import Partition

CLEANABLE = {"segment.ms": "60000", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "86400000"}
BATCH_RECORDS = dict(zip(CODECS, (1_000, 50, 7, 300, 20), strict=True))


class Placed(NamedTuple):
    """A record where its broker has put it."""

    offset: int
    entry: Entry


@dataclass(slots=True)
class Log:
    """One side of a seed. `written`: all of its committed records; `left`: those that can still be read.

    `start`: the log start; `began`: the first offset that is the flow's; `end`: the flow's position on the source, the
    first offset behind its records on the target."""

    written: list[Placed]
    start: int = 0
    began: int = 0
    end: int = 0
    left: frozenset[int] = frozenset()

    @property
    def visible(self) -> list[Placed]:
        """What can still be read, in order."""
        return [placed for placed in self.written if placed.offset in self.left]


@dataclass(slots=True)
class Logs:
    """A seed as it stands on both brokers."""

    seeded: Seeded
    at: Partition
    source: Log
    target: Log


class SeededFlow:
    """One flow over all of these seeds: a topic for each shape, a partition for each seed."""

    def __init__(
        self, source: Addressed, target: Addressed, directory: Path, name: str, seeds: Sequence[Seeded]
    ) -> None:
        self._brokers = source.bootstrap, target.bootstrap
        by_shape = {shape: [seed for seed in seeds if seed.shape is shape] for shape in SHAPES}
        self._topics = {shape: f"{name}.{shape.name}" for shape, chosen in by_shape.items() if chosen}
        self.file = FlowFile(directory, name, *self._brokers, topics=sorted(self._topics.values()))
        self.flow: Flow = config.load(self.file.path).flows[name]
        places = [
            (seed, Partition(self._topics[shape], number))
            for shape, chosen in by_shape.items()
            for number, seed in enumerate(chosen)
        ]
        self._create({topic: len(by_shape[shape]) for shape, topic in self._topics.items()})
        with ThreadPoolExecutor(2) as pool:
            source_logs = pool.submit(_write, self._brokers[0], {at: seed.source for seed, at in places})
            target_logs = pool.submit(_write, self._brokers[1], {_copy(at): seed.target for seed, at in places})
            here, there = source_logs.result(), target_logs.result()
        self.logs = [Logs(seed, at, Log(here[at]), Log(there[_copy(at)])) for seed, at in places]
        self._delete_and_commit()
        self._compact()

    def read_target(self) -> dict[Partition, list[Content]]:
        """What the committed records of the target say now, in order, by source partition."""
        found = read_contents(self._brokers[1], {_copy(logs.at): logs.target.start for logs in self.logs})
        return {logs.at: found[_copy(logs.at)] for logs in self.logs}

    def _create(self, partitions: Mapping[str, int]) -> None:
        for shape, topic in self._topics.items():
            count = partitions[topic]
            clients.create_topic(self._brokers[0], topic, count, CLEANABLE if shape.source_compacted else {})
            clients.create_topic(self._brokers[1], f"{topic}.copy", count, CLEANABLE if shape.target_compacted else {})
        open_flow(self.flow, self._brokers[1], partitions)

    def _delete_and_commit(self) -> None:
        """Deletes the beginnings of logs, and says how far the flow has copied."""
        source_ends = _ends(self._brokers[0], [logs.at for logs in self.logs])
        target_ends = _ends(self._brokers[1], [_copy(logs.at) for logs in self.logs])
        for logs in self.logs:
            seeded, source, target = logs.seeded, logs.source, logs.target
            copied = [placed.offset for placed in source.written if placed.entry.what == "copy"]
            source.began = copied[0]
            more = any(placed.entry.what == "behind" for placed in source.written)
            source.end = copied[-1] + 1 if more or not seeded.past_markers else source_ends[logs.at]
            target.end = target.written[-1].offset + 1 if target.written else 0
            if seeded.source_cut:
                source.start = copied[seeded.source_cut - 1] + 1
            if seeded.target_cut:
                target.start = target.written[seeded.target_cut - 1].offset + 1
            assert target.end <= target_ends[_copy(logs.at)]
        _delete(self._brokers[0], {logs.at: logs.source.start for logs in self.logs})
        _delete(self._brokers[1], {_copy(logs.at): logs.target.start for logs in self.logs})
        self._commit()

    def _commit(self) -> None:
        topics = sorted(self._topics.values())
        with ControlPlane(self.flow) as clusters:
            here, _ = clusters.connect()
            sources, targets = clusters.list_source(), clusters.list_target(topics)
        offsets = []
        for logs in self.logs:
            if not logs.seeded.has_position:
                continue
            at, to = logs.at, _copy(logs.at)
            evidence = Evidence(
                generation=1,
                owner=NOBODY,
                source_topic=at.topic,
                source_cluster=here.cluster_id,
                source_topic_id=sources[at.topic].topic_id,
                target_topic_id=targets[to.topic].topic_id,
                log_start=logs.source.began,
                next_target_offset=logs.target.end,
                count=len(logs.seeded.records),
                delivery=logs.seeded.delivery,
            )
            offsets.append(TopicPartition(*to, logs.source.end, metadata=checkpoint.encode(evidence)))
        client = clients.consumer(self._brokers[1], group_id=names.position_group(self.flow.name))
        client.commit(offsets=offsets, asynchronous=False)
        client.close()

    def _compact(self) -> None:
        """Lets the cleaners begin, and returns once they are through: no record is left that a cleaner may take."""
        for shape, topic in self._topics.items():
            for compacted, bootstrap, name in (
                (shape.source_compacted, self._brokers[0], topic),
                (shape.target_compacted, self._brokers[1], f"{topic}.copy"),
            ):
                if compacted:
                    set_compacted(bootstrap, name)
        for shape, topic in self._topics.items():
            mine = [logs for logs in self.logs if logs.at.topic == topic]
            self._wait_cleaned(shape, mine)

    def _wait_cleaned(self, shape: Shape, mine: Sequence[Logs]) -> None:
        sides = (
            (self._brokers[0], shape.source_compacted, {logs.at: logs.source for logs in mine}),
            (self._brokers[1], shape.target_compacted, {_copy(logs.at): logs.target for logs in mine}),
        )
        for bootstrap, compacted, side in sides:
            for log in side.values():
                kept = [placed for placed in log.written if placed.offset >= log.start]
                log.left = frozenset(placed.offset for placed in (_cleaned(kept) if compacted else kept))
            differ = partial(_differences, bootstrap, side)
            wait_until(partial(_is_empty, differ), "the cleaner is through", differ)


def _copy(at: Partition) -> Partition:
    return Partition(f"{at.topic}.copy", at.partition)


def _cleaned(kept: Sequence[Placed]) -> list[Placed]:
    """What a cleaner leaves: of each key the last record, and what stands in the last segment, which has one record."""
    last = {placed.entry.content.key: placed.offset for placed in kept[:-1]}
    return [
        placed
        for placed in kept
        if placed is kept[-1]
        or (placed.entry.content.key is not None and last[placed.entry.content.key] == placed.offset)
    ]


def _is_empty(text: Callable[[], str]) -> bool:
    return not text()


def _differences(bootstrap: str, side: Mapping[Partition, Log]) -> str:
    found = read_offsets(bootstrap, {at: log.start for at, log in side.items()})
    wrong = {at: (len(found[at]), len(log.left)) for at, log in side.items() if found[at] != log.left}
    return f"{len(wrong)} partitions: {list(wrong.items())[:5]}" if wrong else ""


def read_offsets(bootstrap: str, starts: Mapping[Partition, int]) -> dict[Partition, set[int]]:
    """The offsets of the committed records of all these partitions."""
    found: dict[Partition, set[int]] = {at: set() for at in starts}
    for at, message in _read(bootstrap, starts):
        found[at].add(_number(message.offset()))
    return found


def read_contents(bootstrap: str, starts: Mapping[Partition, int]) -> dict[Partition, list[Content]]:
    """What the committed records of all these partitions say, in order."""
    found: dict[Partition, list[Content]] = {at: [] for at in starts}
    for at, message in _read(bootstrap, starts):
        headers = tuple(cast(list[tuple[str, bytes | None]], message.headers() or []))
        found[at].append(Content(message.key(), message.value(), message.timestamp()[1], headers))
    return found


def _read(bootstrap: str, starts: Mapping[Partition, int]) -> Iterator[tuple[Partition, Message]]:
    client = clients.consumer(bootstrap)
    client.assign([TopicPartition(*at, offset) for at, offset in starts.items()])
    ended: set[Partition] = set()
    try:
        while len(ended) < len(starts):
            for message in client.consume(10_000, timeout=0.2):
                error, at = message.error(), Partition(str(message.topic()), _number(message.partition()))
                if error is None:
                    yield at, message
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(at)
                else:
                    raise AssertionError(f"{at}: {error}")
    finally:
        client.close()


def _number(value: int | None) -> int:
    assert value is not None
    return value


def _ends(bootstrap: str, ats: Collection[Partition]) -> dict[Partition, int]:
    """Where the logs end, once every marker is written."""
    stable = clients.consumer(bootstrap)
    whole = clients.consumer(bootstrap, isolation_level="read_uncommitted")

    def end(client: Consumer, at: Partition) -> int:
        return int(client.get_watermark_offsets(TopicPartition(*at), timeout=clients.TIMEOUT_S, cached=False)[1])

    try:
        for at in ats:
            ended = partial(lambda at: end(stable, at) == end(whole, at), at)
            wait_until(ended, f"every transaction of {at} has ended", lambda: "")
        return {at: end(stable, at) for at in ats}
    finally:
        stable.close()
        whole.close()


def _delete(bootstrap: str, starts: Mapping[Partition, int]) -> None:
    wanted = [TopicPartition(*at, offset) for at, offset in starts.items() if offset]
    client = clients.admin(bootstrap)
    for future in client.delete_records(wanted).values() if wanted else ():
        future.result(clients.TIMEOUT_S)


def set_compacted(bootstrap: str, topic: str) -> None:
    clients.set_topic_config(bootstrap, topic, "cleanup.policy", "compact")


class _Writers:
    """Producers for every codec: plain, for transactions that are committed, and for those that are aborted."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._producers: dict[tuple[str, str], Producer] = {}
        self._bootstrap, self._name = bootstrap, name
        self._failed: list[KafkaError] = []

    def of(self, how: str, codec: str) -> Producer:
        """Made when it is used first."""
        if (how, codec) not in self._producers:
            settings = {
                "compression_type": codec,
                "batch_num_messages": BATCH_RECORDS[codec],
                "linger_ms": 20,
                "queue_buffering_max_messages": 1_000_000,
            }
            self._producers[how, codec] = (
                clients.producer(self._bootstrap, **settings)
                if how == "plain"
                else clients.transactional(self._bootstrap, f"{self._name}-{how}-{codec}", **settings)
            )
        return self._producers[how, codec]

    def send(self, how: str, codec: str, at: Partition, content: Content, placed: list[int]) -> None:
        """Its offset is added to `placed` once it is there."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._failed.append(error)
            else:
                placed.append(_number(message.offset()))

        producer = self.of(how, codec)
        producer.produce(
            at.topic,
            content.value,
            content.key,
            partition=at.partition,
            timestamp=content.timestamp_ms,
            headers=list(content.headers) or None,
            on_delivery=delivered,
        )
        producer.poll(0)

    def flush(self) -> None:
        """Until all is there."""
        for producer in self._producers.values():
            assert producer.flush(clients.TIMEOUT_S) == 0
        assert not self._failed, self._failed[:5]


def _write(bootstrap: str, partitions: Mapping[Partition, Sequence[Step]]) -> dict[Partition, list[Placed]]:
    """Each partition step by step, all partitions beside one another; the offsets of the committed records."""
    first = next(iter(partitions))
    writers = _Writers(bootstrap, first.topic)
    offsets: dict[Partition, list[int]] = {at: [] for at in partitions}
    for number in range(max(len(steps) for steps in partitions.values())):
        _write_steps(writers, {at: steps[number] for at, steps in partitions.items() if number < len(steps)}, offsets)
    found = {}
    for at, steps in partitions.items():
        entries = [entry for step in steps for entry in step.entries]
        found[at] = [Placed(offset, entry) for offset, entry in zip(offsets[at], entries, strict=True)]
        assert offsets[at] == sorted(set(offsets[at])), at
    return found


def _write_steps(writers: _Writers, steps: Mapping[Partition, Step], offsets: Mapping[Partition, list[int]]) -> None:
    """One step of each partition. Half of a step's records stand before its aborted ones."""
    ended = {("committed", step.codec): True for step in steps.values() if step.transaction and step.entries}
    ended |= {("aborted", step.codec): False for step in steps.values() if step.aborted}
    for how, codec in ended:
        writers.of(how, codec).begin_transaction()
    for first_half in (True, False):
        for at, step in steps.items():
            middle = len(step.entries) // 2 if step.aborted else len(step.entries)
            how = "committed" if step.transaction else "plain"
            for entry in step.entries[:middle] if first_half else step.entries[middle:]:
                writers.send(how, step.codec, at, entry.content, offsets[at])
        writers.flush()
        if first_half:
            for at, step in steps.items():
                for content in step.aborted:
                    writers.send("aborted", step.codec, at, content, [])
            writers.flush()
    for (how, codec), commit in ended.items():
        producer = writers.of(how, codec)
        if commit:
            producer.commit_transaction(clients.TIMEOUT_S)
        else:
            producer.abort_transaction(clients.TIMEOUT_S)
