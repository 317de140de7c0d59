"""Whatever client properties a flow file may have, each client of the replicator can be made with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from replicator.config import Flow, load_text
from replicator.kafka import properties
from replicator.kafka.client_log import line_logger
from replicator.model.errors import ConfigError

MIB = 2**20
NUMBERS = (0, 1, 999, 60_000, 200_000, 999_999, 5_000_000, 100_000_000)
TUNABLE = (
    "batch.size",
    "connections.max.idle.ms",
    "delivery.report.only.error",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "heartbeat.interval.ms",
    "linger.ms",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "message.copy.max.bytes",
    "message.max.bytes",
    "queue.buffering.backpressure.threshold",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.ms",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "receive.message.max.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "session.timeout.ms",
    "socket.timeout.ms",
)


def flow(given: Mapping[str, object], limits: str = "") -> Flow:
    written = ", ".join(f"{key}: {value}" for key, value in given.items())
    text = f"""\
clusters:
  a: {{properties: {{bootstrap.servers: "127.0.0.1:1", {written}}}}}
  b: {{properties: {{bootstrap.servers: "127.0.0.1:2", {written}}}}}
flows:
  f: {{source: a, target: b, topics: [t], limits: {{{limits}}}}}
"""
    return load_text(text, env={}).flows["f"]


def loaded(given: Mapping[str, object]) -> Flow | str:
    """The flow, or what its file is refused with."""
    try:
        return flow(given)
    except ConfigError as error:
        return str(error)


def made_by(of: Flow) -> Iterator[tuple[Any, properties.Properties]]:
    """Class and settings of all clients of a flow."""
    for cluster in (of.source, of.target):
        yield Consumer, properties.reader(cluster, of, committed=True)
        yield Consumer, properties.scanning_reader(cluster, of)
        yield Consumer, properties.scanning_reader(cluster, of, record_bytes_max=50 * MIB)
    yield Consumer, properties.source_consumer(of)
    yield Consumer, properties.source_consumer(of, record_bytes_max=50 * MIB, bulk=True)
    yield Consumer, properties.probing_consumer(of, 0, 10)
    yield Consumer, properties.group_member(of, "m")
    yield Producer, properties.lane_producer(of, "t", batch_bytes_max=1_000)
    yield Producer, properties.decision_producer(of)
    yield Producer, properties.groups_producer(of)
    yield Producer, properties.plain_producer(of)
    yield Producer, properties.note_producer(of, 1.0)
    yield Producer, properties.heartbeat_producer(of)


def test_no_client_has_a_cluster_create_the_topics_that_it_asks_for() -> None:
    of = flow({})
    clients = [settings for _, settings in made_by(of)]
    clients += [properties.client_properties(cluster) for cluster in (of.source, of.target)]
    assert {settings["allow.auto.create.topics"] for settings in clients} == {False}


def test_a_producer_logs_nothing_of_a_property_that_it_heeds() -> None:
    lines: list[str] = []
    producer = Producer(properties.lane_producer(flow({}), "t"), logger=line_logger(lines.append))
    producer.poll(0.1)
    assert [line for line in lines if "property" in line] == []


@pytest.mark.tier("default")
@pytest.mark.parametrize("key", TUNABLE)
def test_a_property_is_refused_by_its_name_or_takes_no_client_down(key: str) -> None:
    for value in NUMBERS:
        of = loaded({key: value})
        if isinstance(of, str):
            assert f"properties.{key}: " in of
            continue
        for kind, settings in made_by(of):
            kind({**settings, **properties.SILENT})


def test_properties_of_a_reader_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"clusters\.a\.properties\.fetch\.min\.bytes: .*outside allowed range"):
        flow({"fetch.min.bytes": 900_000_000})


@pytest.mark.parametrize(
    ("given", "pause_ms"),
    [
        ({}, 250),
        ({"reconnect.backoff.max.ms": 200}, 200),
        ({"reconnect.backoff.ms": 30}, 30),
        ({"reconnect.backoff.ms": 2_000}, 2_000),
    ],
)
def test_the_source_reader_pauses_before_it_connects_again_within_what_the_file_says(
    given: Mapping[str, object], pause_ms: int
) -> None:
    made = properties.source_consumer(flow(given))
    assert int(str(made["reconnect.backoff.ms"])) == pause_ms <= int(str(made["reconnect.backoff.max.ms"]))
    Consumer(made).close()


@pytest.mark.parametrize(
    ("given", "in_all", "of_partition"),
    [
        ({}, 16 * MIB, MIB),
        ({"fetch.max.bytes": 200_000}, 200_000, 200_000),
        ({"fetch.message.max.bytes": 100_000}, 16 * MIB, 100_000),
        ({"max.partition.fetch.bytes": 4 * MIB}, 16 * MIB, 4 * MIB),
        ({"fetch.max.bytes": 10, "fetch.message.max.bytes": 1}, 1_000, 1),
        ({"fetch.max.bytes": 900_000_000, "fetch.message.max.bytes": 900_000_000}, 16 * MIB, 16 * MIB),
    ],
)
def test_the_source_reader_fetches_as_much_as_the_file_says(
    given: Mapping[str, int], in_all: int, of_partition: int
) -> None:
    of = flow(given)
    settings = properties.source_consumer(of)
    assert (settings["fetch.max.bytes"], settings["fetch.message.max.bytes"]) == (in_all, of_partition)
    assert settings["receive.message.max.bytes"] == 17 * MIB, "a batch that is larger comes all the same"
    assert properties.fetch_bytes(of, 0, bulk=False) == (in_all, of_partition)
    assert "fetch.max.bytes" not in properties.reader(of.target, of, committed=True)


def test_a_socket_times_out_before_the_transaction() -> None:
    of = flow({"socket.timeout.ms": 120_000}, "transaction_timeout_ms: 30s")
    assert properties.lane_producer(of, "t")["socket.timeout.ms"] == 30_000
    assert properties.decision_producer(of)["socket.timeout.ms"] == 10_000
    assert "socket.timeout.ms" not in properties.lane_producer(flow({}), "t"), "the client library's own"
