"""The broker's settings under Kafka's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedded_broker.config.settings import BrokerConfig
from embedded_broker.metadata.broker_configs import SETTINGS, broker_configs, configured
from embedded_broker.metadata.topic_configs import ConfigKind, InvalidConfig

CONFIG = BrokerConfig(Path("data"))


def test_configs_are_described_as_set() -> None:
    told = broker_configs(CONFIG, [])
    for name in SETTINGS:
        text = {ConfigKind.BOOLEAN: "true", ConfigKind.STRING: "10.0.0.1:7"}.get(told[name][0], "2048")
        changed = configured(CONFIG, {name: text})
        assert broker_configs(changed, [])[name][1] == text
        assert changed != CONFIG


def test_kafkas_units_are_kept() -> None:
    assert configured(CONFIG, {"offsets.retention.minutes": "3"}).offsets_retention_ms == 180_000
    assert broker_configs(CONFIG, [])["offsets.retention.minutes"][1] == "10080"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.dirs", "x"),
        ("nonsense", "1"),
        ("num.partitions", "0"),
        ("num.partitions", "x"),
        ("num.partitions", "-1"),
        ("max.connections", str(2**31)),
        ("max.connections.per.ip.overrides", "10.0.0.1"),
        ("auto.create.topics.enable", "yes"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        configured(CONFIG, {name: value})
