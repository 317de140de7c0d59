"""A two-phase transaction (KIP-939) at a source, on real Kafka 4.3 with APIs that aren't released."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from integration_tests.harness.kafka_container import KafkaContainer, need_kafka
from integration_tests.harness.transacting import DEFAULT_TIMEOUT_MS, Producer, TransactionClient, transaction_client
from integration_tests.harness.wire import MILLISECOND, settled
from replicator.config import load_text
from replicator.inspect import planning

pytestmark = [pytest.mark.kafka, pytest.mark.tier("long", kafka="long")]
SETTINGS = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    need_kafka()
    broker = KafkaContainer(settings=SETTINGS)
    try:
        broker.start()
        yield broker.bootstrap
    finally:
        broker.stop()


def two_phase(client: TransactionClient) -> Producer:
    """A producer of two-phase commits, which is none of the released versions of InitProducerId."""

    def ask() -> Any:
        return client.wire(
            "init_producer_id",
            6,
            transactional_id=client.transactional_id,
            transaction_timeout=DEFAULT_TIMEOUT_MS * MILLISECOND,
            producer_id=-1,
            producer_epoch=-1,
            enable2_pc=True,
            keep_prepared_txn=False,
        )

    answer = settled(ask, lambda found: found.error_code)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def test_a_two_phase_transaction_is_told_from_others(bootstrap: str) -> None:
    config = load_text(
        f"""\
clusters:
  a: {{properties: {{bootstrap.servers: "{bootstrap}"}}}}
  b: {{properties: {{bootstrap.servers: "{bootstrap}"}}}}
flows:
  f: {{source: a, target: b, topics: [t, plain]}}
""",
        env={},
    )
    flow = config.flows["f"]

    def said() -> list[str]:
        return [it.message for it in planning.plan(flow, config, connect_timeout_ms=10_000).findings]

    with (
        transaction_client(bootstrap, "t", "prepared", "g") as client,
        transaction_client(bootstrap, "plain", "plain", "g") as other,
    ):
        assert said() == []
        for each, producer in ((client, two_phase(client)), (other, other.fresh())):
            each.add(producer, 0)
            each.produce(producer, 0)
        (text,) = said()
    assert text.startswith("transaction of 'prepared' at the source, open for ")
    assert text.endswith("it never times out, and what follows it in t[0] is not copied until its owner ends it")
