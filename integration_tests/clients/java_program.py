"""The plan's program with Java's own client of the 3.x line, the one that Spark's connector ships, driven over py4j.

No compiler is needed, so any Java runtime will do. The client comes from Maven Central by the Ivy that Spark brings,
once for each machine; what it needs besides, Spark has. It runs in a process of its own, because a Spark session in the
same one changes what py4j does with exceptions.

    python -m integration_tests.clients.java_program JAR   # the plan on stdin, the report on stdout
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from integration_tests.clients.plan import IDEMPOTENT, Plan, ReadRecord, Report, stage

VERSION = "3.9.0"
JARS = Path(pyspark.__file__).parent / "jars"
NEEDED = ("py4j", "slf4j-api", "lz4-java", "snappy-java", "zstd-jni")
QUICK = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
FENCED = {"ProducerFencedException", "InvalidProducerEpochException"}
DOWNLOAD_S_MAX, RUN_S_MAX, WAIT_S_MAX = 240, 240, 120.0
SERIALIZER = "org.apache.kafka.common.serialization.StringSerializer"
DESERIALIZER = "org.apache.kafka.common.serialization.StringDeserializer"


def kafka_clients(directory: Path) -> Path:
    """The client's jar, copied into `directory`. Raises CalledProcessError when it can't be had."""
    ivy = next(JARS.glob("ivy-*.jar"))
    command = [_java(), *QUICK, "-jar", str(ivy), "-warn", "-notransitive", "-confs", "default"]
    command += ["-dependency", "org.apache.kafka", "kafka-clients", VERSION]
    command += ["-retrieve", f"{directory}/[artifact]-[revision].[ext]"]
    subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_S_MAX, check=True)
    return directory / f"kafka-clients-{VERSION}.jar"


def run(plan: Plan, jar: Path) -> Report:
    """See `plan`."""
    command = [sys.executable, "-m", "integration_tests.clients.java_program", str(jar)]
    told = json.dumps(asdict(plan))
    done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    assert done.returncode == 0, done.stderr
    return Report.of_json(done.stdout)


def _run(plan: Plan, jar: Path) -> Report:
    with _jvm(jar) as jvm:
        found = str(jvm.org.apache.kafka.common.utils.AppInfoParser.getVersion())
        assert found == VERSION
        return _Program(plan, jvm).run()


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    assert found is not None
    return found


@contextmanager
def _jvm(jar: Path) -> Iterator[Any]:
    needed = [str(next(JARS.glob(f"{name}-[0-9]*.jar"))) for name in NEEDED]
    port, process = launch_gateway(
        jarpath=needed[0],
        classpath=os.pathsep.join([str(jar), *needed]),
        javaopts=list(QUICK),
        java_path=_java(),
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        process.stdin.close()  # it ends with it
        process.wait(WAIT_S_MAX)


class _Program:
    def __init__(self, plan: Plan, jvm: Any) -> None:
        self._plan, self._jvm, self._report = plan, jvm, Report()
        self._clients = jvm.org.apache.kafka.clients

    def run(self) -> Report:
        self._create()
        for codec in self._plan.codecs:
            self._write(codec, {"compression.type": codec, "enable.idempotence": "false"})
        self._write(IDEMPOTENT, {"enable.idempotence": "true"})
        self._transactions()
        self._read()
        self._copy()
        with closing(self._consumer(None)) as reader:
            reader.assign([self._at(self._plan.output, number) for number in (0, 1)])
            self._report.copied = [_read_record(record) for record in self._poll(reader, self._plan.total())]
        return self._report

    def _create(self) -> None:
        with closing(self._clients.admin.Admin.create(self._settings())) as admin:
            new = [
                self._clients.admin.NewTopic(name, 2, self._jvm.Short.parseShort("1"))
                for name in (self._plan.topic, self._plan.output)
            ]
            admin.createTopics(new).all().get()

    def _settings(self, **more: str) -> dict[str, str]:
        return {"bootstrap.servers": self._plan.bootstrap, **more}

    def _producer(self, settings: dict[str, str]) -> Any:
        plain = {"key.serializer": SERIALIZER, "value.serializer": SERIALIZER, "linger.ms": "5"}
        return self._clients.producer.KafkaProducer(self._settings(**plain, **settings))

    def _consumer(self, group: str | None) -> Any:
        settings = {
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "fetch.max.wait.ms": "50",
            "key.deserializer": DESERIALIZER,
            "value.deserializer": DESERIALIZER,
            **({} if group is None else {"group.id": group}),
        }
        return self._clients.consumer.KafkaConsumer(self._settings(**settings))

    def _at(self, topic: str, partition: int) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)

    def _write(self, stage: str, settings: dict[str, str]) -> None:
        with closing(self._producer(settings)) as producer:
            self._put(producer, self._plan.topic, 0, self._plan.values(stage))

    def _put(self, producer: Any, topic: str, partition: int, values: Iterable[str]) -> None:
        record = self._clients.producer.ProducerRecord
        sent = [producer.send(record(topic, partition, None, value)) for value in values]
        producer.flush()
        for future in sent:
            future.get()

    def _transactions(self) -> None:
        settings = {"transactional.id": self._plan.transactional_id}
        older = self._producer(settings)
        older.initTransactions()
        with closing(self._producer(settings)) as producer:
            producer.initTransactions()
            for number, commit in enumerate(self._plan.rounds):
                producer.beginTransaction()
                self._put(producer, self._plan.topic, 1, self._plan.values(stage(number)))
                (producer.commitTransaction if commit else producer.abortTransaction)()
        try:
            older.beginTransaction()
            self._put(older, self._plan.topic, 1, ["from a zombie"])
            older.commitTransaction()
        except Py4JJavaError as error:
            if not FENCED & set(_causes(error.java_exception)):
                raise
            self._report.fenced = True
        else:
            self._report.fenced = False
        older.close(self._jvm.java.time.Duration.ZERO)

    def _read(self) -> None:
        with closing(self._consumer(self._plan.group)) as reader:
            reader.subscribe([self._plan.topic])
            self._report.read = [_read_record(record) for record in self._poll(reader, self._plan.total())]
            reader.commitSync()
            found = reader.committed(reader.assignment())
            self._report.committed = {at.partition(): found[at].offset() for at in found}
            first = self._at(self._plan.topic, 0)
            for time_ms in self._report.ask_times():
                asked = self._jvm.java.util.HashMap()
                asked.put(first, self._jvm.Long.valueOf(time_ms))
                answer = reader.offsetsForTimes(asked).get(first)
                self._report.by_time[time_ms] = None if answer is None else answer.offset()

    def _copy(self) -> None:
        copied, attempts = 0, 0
        with (
            closing(self._producer({"transactional.id": f"{self._plan.transactional_id}-copy"})) as producer,
            closing(self._consumer(self._plan.copier)) as reader,
        ):
            producer.initTransactions()
            reader.subscribe([self._plan.topic])
            while copied < self._plan.total():
                records = self._poll(reader, 1)
                producer.beginTransaction()
                for number in (0, 1):
                    mine = [record.value().upper() for record in records if record.partition() == number]
                    self._put(producer, self._plan.output, number, mine)
                offsets = self._jvm.java.util.HashMap()
                for at in reader.assignment():
                    offsets.put(at, self._clients.consumer.OffsetAndMetadata(reader.position(at)))
                producer.sendOffsetsToTransaction(offsets, reader.groupMetadata())
                attempts += 1
                if attempts == 1:
                    producer.abortTransaction()
                    reader.seekToBeginning(reader.assignment())  # nothing is committed yet
                else:
                    producer.commitTransaction()
                    copied += len(records)

    def _poll(self, reader: Any, count: int) -> list[Any]:
        """At least `count` records."""
        found: list[Any] = []
        wait = self._jvm.java.time.Duration.ofMillis(200)
        deadline = time.monotonic() + WAIT_S_MAX
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records"
            found += reader.poll(wait).iterator()
        return found


def _causes(error: Any) -> Iterator[str]:
    while error is not None:
        yield str(error.getClass().getSimpleName())
        error = error.getCause()


def _read_record(record: Any) -> ReadRecord:
    return ReadRecord(record.partition(), record.offset(), record.timestamp(), record.value())


if __name__ == "__main__":
    print(json.dumps(asdict(_run(Plan(**json.load(sys.stdin)), Path(sys.argv[1])))))
