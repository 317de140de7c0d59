"""The plan's program with aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import ProducerFenced
from aiokafka.structs import ConsumerRecord

from integration_tests.clients.plan import IDEMPOTENT, Plan, ReadRecord, Report, stage

POLL_MS, RUN_S_MAX = 200, 60.0


def run(plan: Plan) -> Report:
    """See `plan`."""
    return asyncio.run(asyncio.wait_for(_Program(plan).run(), RUN_S_MAX))


class _Program:
    def __init__(self, plan: Plan) -> None:
        self._plan, self._report = plan, Report()

    async def run(self) -> Report:
        await self._create()
        for codec in self._plan.codecs:
            await self._write(codec, compression_type=None if codec == "none" else codec)
        await self._write(IDEMPOTENT, enable_idempotence=True)
        await self._transactions()
        await self._read()
        await self._copy()
        async with self._consumer(None) as reader:
            _assign(reader, self._plan.output)
            self._report.copied = [_read_record(record) for record in await _poll(reader, self._plan.total())]
        return self._report

    async def _create(self) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._plan.bootstrap)
        await admin.start()
        try:
            made = await admin.create_topics([NewTopic(name, 2, 1) for name in (self._plan.topic, self._plan.output)])
            assert [code for _, code, *_ in made.topic_errors] == [0, 0]
        finally:
            await admin.close()

    def _producer(self, **options: Any) -> AIOKafkaProducer:
        return AIOKafkaProducer(bootstrap_servers=self._plan.bootstrap, **options)

    def _consumer(self, group: str | None) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self._plan.bootstrap,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=50,
        )

    async def _write(self, stage: str, **options: Any) -> None:
        async with self._producer(**options) as producer:
            await self._put(producer, self._plan.topic, 0, self._plan.values(stage))

    async def _put(self, producer: AIOKafkaProducer, topic: str, partition: int, values: Iterable[str]) -> None:
        sent = [await producer.send(topic, value.encode(), partition=partition) for value in values]
        await asyncio.gather(*sent)

    async def _transactions(self) -> None:
        older = self._producer(transactional_id=self._plan.transactional_id)
        await older.start()
        async with self._producer(transactional_id=self._plan.transactional_id) as producer:
            for number, commit in enumerate(self._plan.rounds):
                await producer.begin_transaction()
                await self._put(producer, self._plan.topic, 1, self._plan.values(stage(number)))
                await (producer.commit_transaction() if commit else producer.abort_transaction())
        try:
            await older.begin_transaction()
            await older.send_and_wait(self._plan.topic, b"from a zombie", partition=1)
            await older.commit_transaction()
        except ProducerFenced:
            self._report.fenced = True
        else:
            self._report.fenced = False
        await older.stop()

    async def _read(self) -> None:
        async with self._consumer(self._plan.group) as reader:
            reader.subscribe([self._plan.topic])
            self._report.read = [_read_record(record) for record in await _poll(reader, self._plan.total())]
            await reader.commit()
            first = TopicPartition(self._plan.topic, 0)
            self._report.committed = {at.partition: await reader.committed(at) for at in reader.assignment()}
            for time_ms in self._report.ask_times():
                found = (await reader.offsets_for_times({first: time_ms}))[first]
                self._report.by_time[time_ms] = None if found is None else found.offset

    async def _copy(self) -> None:
        copied, attempts = 0, 0
        async with (
            self._producer(transactional_id=f"{self._plan.transactional_id}-copy") as producer,
            self._consumer(self._plan.copier) as reader,
        ):
            reader.subscribe([self._plan.topic])
            while copied < self._plan.total():
                records = await _poll(reader, 1)
                await producer.begin_transaction()
                for number in (0, 1):
                    mine = [_read_record(record).value.upper() for record in records if record.partition == number]
                    await self._put(producer, self._plan.output, number, mine)
                offsets = {at: await reader.position(at) for at in reader.assignment()}
                await producer.send_offsets_to_transaction(offsets, self._plan.copier)
                attempts += 1
                if attempts == 1:
                    await producer.abort_transaction()
                    for at in reader.assignment():  # `seek_to_committed` stays where it is if there is none
                        reader.seek(at, await reader.committed(at) or 0)
                else:
                    await producer.commit_transaction()
                    copied += len(records)


def _assign(reader: AIOKafkaConsumer, topic: str) -> None:
    reader.assign([TopicPartition(topic, number) for number in (0, 1)])


async def _poll(reader: AIOKafkaConsumer, count: int) -> list[ConsumerRecord[bytes, bytes]]:
    """At least `count` records."""
    found: list[ConsumerRecord[bytes, bytes]] = []
    while len(found) < count:
        for records in (await reader.getmany(timeout_ms=POLL_MS)).values():
            found += records
    return found


def _read_record(record: ConsumerRecord[bytes, bytes]) -> ReadRecord:
    return ReadRecord(record.partition, record.offset, record.timestamp, (record.value or b"").decode())
