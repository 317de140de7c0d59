"""The pytest plugin: the fixture `kafka_broker`, a marker of the same name, an option and a setting."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from embedded_broker.testing.handle import KafkaBroker

MODES = ("thread", "process")
MARKER = (
    "kafka_broker(mode='thread'|'process', settings={...}, fsync='always'|'interval'|'never'): how the broker is run"
)
LOG_SECTION = "kafka_broker log"


def pytest_addoption(parser: pytest.Parser) -> None:
    """See pytest."""
    group = parser.getgroup("kafka_broker")
    group.addoption("--kafka-broker", choices=MODES, help="how the fixture kafka_broker runs its broker")
    parser.addini("kafka_broker", "how the fixture kafka_broker runs its broker: thread or process", default="thread")


def pytest_configure(config: pytest.Config) -> None:
    """See pytest."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    """Run a Kafka broker on a free port with nothing in it, for one test.

    `@pytest.mark.kafka_broker(...)` takes the arguments of `KafkaBroker`; without it `--kafka-broker` and the setting
    `kafka_broker` say how the broker is run.
    """
    marker = request.node.get_closest_marker("kafka_broker")
    arguments: dict[str, Any] = {
        "mode": request.config.getoption("kafka_broker") or request.config.getini("kafka_broker"),
        **(marker.kwargs if marker is not None else {}),
    }
    if marker is not None and marker.args:
        raise pytest.UsageError("kafka_broker takes its arguments by their names")
    with KafkaBroker(**arguments) as broker:
        yield broker


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the broker's log with a test that fails."""
    report = yield
    broker = getattr(item, "funcargs", {}).get("kafka_broker")
    if report.when == "call" and report.failed and isinstance(broker, KafkaBroker):
        report.sections.append((LOG_SECTION, broker.log()))
    return report
