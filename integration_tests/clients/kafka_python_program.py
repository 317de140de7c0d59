"""The plan's program with kafka-python."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import InvalidProducerEpochError, ProducerFencedError, RebalanceInProgressError

from integration_tests.clients.plan import IDEMPOTENT, Plan, ReadRecord, Report, stage

POLL_MS, WAIT_S_MAX = 200, 30.0


def run(plan: Plan) -> Report:
    """See `plan`."""
    return _Program(plan).run()


class _Program:
    def __init__(self, plan: Plan) -> None:
        self._plan, self._report = plan, Report()

    def run(self) -> Report:
        with closing(KafkaAdminClient(bootstrap_servers=self._plan.bootstrap)) as admin:
            admin.create_topics([NewTopic(name, 2, 1) for name in (self._plan.topic, self._plan.output)])
        for codec in self._plan.codecs:
            compression = None if codec == "none" else codec
            self._write(codec, enable_idempotence=False, compression_type=compression)
        self._write(IDEMPOTENT, enable_idempotence=True)
        self._transactions()
        self._read()
        self._copy()
        with closing(self._consumer(None)) as reader:
            reader.assign([TopicPartition(self._plan.output, number) for number in (0, 1)])
            self._report.copied = [_read_record(record) for record in _poll(reader, self._plan.total())]
        return self._report

    def _producer(self, **options: Any) -> Any:
        return KafkaProducer(bootstrap_servers=self._plan.bootstrap, linger_ms=5, **options)

    def _consumer(self, group: str | None) -> Any:
        return KafkaConsumer(
            bootstrap_servers=self._plan.bootstrap,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=50,
        )

    def _subscribe(self, reader: Any) -> None:
        """A reader that joins before it knows the topic has to join again, and forgets the partitions that it gets then
        if a poll's time has just ended (seen in 3.0.12: 0 records for ever). So it learns of the topic first."""
        assert reader.partitions_for_topic(self._plan.topic) == {0, 1}
        reader.subscribe([self._plan.topic])

    def _write(self, stage: str, **options: Any) -> None:
        with closing(self._producer(**options)) as producer:
            _put(producer, self._plan.topic, 0, self._plan.values(stage))

    def _transactions(self) -> None:
        plan = self._plan
        older = self._producer(transactional_id=plan.transactional_id)
        older.init_transactions()
        with closing(self._producer(transactional_id=plan.transactional_id)) as producer:
            producer.init_transactions()
            for number, commit in enumerate(plan.rounds):
                producer.begin_transaction()
                _put(producer, plan.topic, 1, plan.values(stage(number)))
                (producer.commit_transaction if commit else producer.abort_transaction)()
        try:
            older.begin_transaction()
            _put(older, plan.topic, 1, ["from a zombie"])
            older.commit_transaction()
        except (ProducerFencedError, InvalidProducerEpochError):
            self._report.fenced = True
        else:
            self._report.fenced = False
        older.close(timeout=0)

    def _read_and_commit(self, reader: Any) -> list[ReadRecord]:
        """A rebalance may come before the commit. Nothing is committed then, so all of it is read again."""
        while True:
            read = [_read_record(record) for record in _poll(reader, self._plan.total())]
            try:
                reader.commit()
            except RebalanceInProgressError:
                continue
            return read

    def _read(self) -> None:
        with closing(self._consumer(self._plan.group)) as reader:
            self._subscribe(reader)
            self._report.read = self._read_and_commit(reader)
            first = TopicPartition(self._plan.topic, 0)
            self._report.committed = {at.partition: reader.committed(at) for at in reader.assignment()}
            for time_ms in self._report.ask_times():
                found = reader.offsets_for_times({first: time_ms})[first]
                self._report.by_time[time_ms] = None if found is None else found.offset

    def _copy(self) -> None:
        copied, attempts = 0, 0
        with (
            closing(self._producer(transactional_id=f"{self._plan.transactional_id}-copy")) as producer,
            closing(self._consumer(self._plan.copier)) as reader,
        ):
            producer.init_transactions()
            self._subscribe(reader)
            while copied < self._plan.total():
                records = _poll(reader, 1)
                producer.begin_transaction()
                for record in records:
                    producer.send(self._plan.output, record.value.upper(), partition=record.partition)
                offsets = {at: OffsetAndMetadata(reader.position(at), "", -1) for at in reader.assignment()}
                producer.send_offsets_to_transaction(offsets, reader.group_metadata())
                attempts += 1
                if attempts == 1:
                    producer.flush()
                    producer.abort_transaction()
                    for at in reader.assignment():
                        reader.seek(at, reader.committed(at) or 0)
                else:
                    producer.commit_transaction()
                    copied += len(records)


def _put(producer: Any, topic: str, partition: int, values: Iterable[str]) -> None:
    sent = [producer.send(topic, value.encode(), partition=partition) for value in values]
    producer.flush()
    for future in sent:
        future.get(WAIT_S_MAX)


def _poll(reader: Any, count: int) -> list[Any]:
    """At least `count` records."""
    found: list[Any] = []
    deadline = time.monotonic() + WAIT_S_MAX
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        for records in reader.poll(timeout_ms=POLL_MS).values():
            found += records
    return found


def _read_record(record: Any) -> ReadRecord:
    return ReadRecord(record.partition, record.offset, record.timestamp, record.value.decode())
