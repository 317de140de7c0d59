"""A flow that logs in with tokens which expire after seconds: it goes on with new ones, with both engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.copying import Copying
from integration_tests.harness.guarded import ON_TARGET_TOPIC
from integration_tests.harness.secured import Secured, secured_broker

USER, LIFE_S = "tina", 6


@pytest.fixture
def guarded(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that ends sessions whose token has expired (KIP-368)."""
    with secured_broker(kind, tmp_path_factory.mktemp("tokens")) as broker:
        yield broker


@pytest.mark.tier("long")
def test_a_flow_goes_on_when_its_tokens_expire(source: BrokerHandle, guarded: Secured, tmp_path: Path) -> None:
    login = {key: str(value) for key, value in guarded.with_token(USER, LIFE_S).items() if key != "log_level"}
    login["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
    copying = Copying(source, guarded, tmp_path, via=login, partitions=2, engine="batches")
    guarded.allow(USER, "GROUP", copying.group, "DESCRIBE", "READ")
    guarded.allow(USER, "TOPIC", copying.copy, *ON_TARGET_TOPIC)
    guarded.allow(USER, "TOPIC", f"__eos.{copying.name}", *ON_TARGET_TOPIC, prefix=True)
    guarded.allow(USER, "TRANSACTIONAL_ID", f"eos.{copying.name}", "DESCRIBE", "WRITE", prefix=True)
    guarded.allow(USER, "BROKER", "kafka-cluster", "DESCRIBE", "DESCRIBE_CONFIGS", "IDEMPOTENT_WRITE")
    try:
        worker = copying.running()
        with copying.writing(20):
            assert worker.runs_on(3 * LIFE_S)
        copying.finish(worker)
        assert worker.seen("incident") == []
        assert worker.seen("map_not_checked") == []
        copying.assert_exact()
    finally:
        copying.close()
