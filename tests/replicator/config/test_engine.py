"""Which engine a flow gets, and what stands against `batches`."""

from __future__ import annotations

from typing import Any

import pytest

from replicator.config import FlowFileError, load_text
from replicator.config.engine import EngineChoice, chosen_engine

pytestmark = pytest.mark.tier("unit")

TEXT = """
clusters:
  east: {{properties: {{bootstrap.servers: "a:9092"{east}}}}}
  west: {{properties: {{bootstrap.servers: "b:9092"}}}}
flows:
  orders: {{source: east, target: west, topics: [orders]{flow}}}
"""


def flow_of(east: str = "", flow: str = "") -> Any:
    return load_text(TEXT.format(east=east, flow=flow), env={}).flows["orders"]


def test_records_are_the_default_and_say_nothing() -> None:
    assert chosen_engine(flow_of()) == EngineChoice("records")
    assert chosen_engine(flow_of()).told() == ""


@pytest.mark.parametrize("engine", ["auto", "batches"])
def test_a_flow_that_asks_for_nothing_else_gets_batches(engine: str) -> None:
    tuned = ', client.rack: a, socket.timeout.ms: "5000", ssl.ca.location: /dev/null, debug: topic'
    found = chosen_engine(flow_of(tuned, f", engine: {engine}"))
    assert found == EngineChoice("batches")
    assert found.told() == "engine batches"


@pytest.mark.parametrize(
    "tokens",
    [
        "sasl.oauthbearer.method: oidc, sasl.oauthbearer.token.endpoint.url: 'https://a/token', "
        "sasl.oauthbearer.client.id: me, sasl.oauthbearer.client.secret: file:"
        f"{__file__}",
        'enable.sasl.oauthbearer.unsecure.jwt: "true", sasl.oauthbearer.config: file:/dev/null',
    ],
)
def test_tokens_of_an_endpoint_and_unsigned_ones_are_honoured(tokens: str) -> None:
    login = f", security.protocol: sasl_ssl, sasl.mechanism: OAUTHBEARER, {tokens}"
    assert chosen_engine(flow_of(login, ", engine: auto")) == EngineChoice("batches")


@pytest.mark.parametrize(
    ("east", "flow", "reason"),
    [
        ("", ", delivery: at_least_once", "delivery: at_least_once"),
        (", compression.type: lz4", "", "clusters.east.properties.compression.type"),
        (", broker.address.family: v4", "", "clusters.east.properties.broker.address.family"),
        (
            ", security.protocol: sasl_ssl, sasl.mechanism: OAUTHBEARER",
            "",
            "clusters.east.properties.sasl.mechanism: OAUTHBEARER",
        ),
    ],
)
def test_what_batches_cannot_honour_is_named_and_refused_or_left_to_records(east: str, flow: str, reason: str) -> None:
    found = chosen_engine(flow_of(east, f"{flow}, engine: auto"))
    assert (found.name, found.reasons[0]) == ("records", reason)
    assert found.told().startswith(f"engine records, because batches can't honour {reason}")
    with pytest.raises(FlowFileError, match=r"flows\.orders\.engine") as refused:
        flow_of(east, f"{flow}, engine: batches")
    assert reason in str(refused.value)
