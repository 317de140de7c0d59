"""The path of a transaction in docs/architecture.md is the one that records take, from poll to EndTxn."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import pytest
import structlog

from integration_tests.harness import clients
from integration_tests.harness.embedded import EmbeddedBroker
from integration_tests.harness.processes import wait_until
from replicator import config
from replicator.flow import wiring
from replicator.flow.worker import FlowWorker

TEXT = (Path(__file__).parents[1] / "docs/architecture.md").read_text()
SECTION = TEXT.partition("## A transaction, from poll to EndTxn\n")[2].partition("\n## ")[0]
OF_RECORDS, _, OF_BATCHES = SECTION.partition("\n### With `engine: batches`\n")
PACKAGE = "replicator."
OF_A_LANE = ("lane", "planes", "kafka", "model")  # what the daemon's own threads do meanwhile isn't the path
OF_BATCHES_WITHOUT_IO = "replicator.planes.batches."
FILES_MAX = 8  # what a stranger can keep in mind
WAIT_S_MAX = 60.0
FLOW = """
clusters:
  east: {{ properties: {{ bootstrap.servers: "{east}" }} }}
  west: {{ properties: {{ bootstrap.servers: "{west}" }} }}
flows:
  orders: {{ source: east, target: west, topics: [orders], engine: {engine},
             limits: {{ discovery_interval_ms: 600000 }} }}
"""


def _modules(text: str) -> list[str]:
    return [PACKAGE + path.replace("/", ".") for path in re.findall(r"`([a-z_0-9/]+)\.py`", text)]


def walk(section: str) -> list[str]:
    """The modules of the section's table, of which each row names one."""
    rows = [line.split("|") for line in section.splitlines() if re.match(r"\| \d", line)]
    assert [int(row[1]) for row in rows] == list(range(1, len(rows) + 1))
    named = [_modules(row[2]) for row in rows]
    assert all(len(modules) == 1 for modules in named), "a row names one file"
    return [module for (module,) in named]


@pytest.fixture
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    east, west = (EmbeddedBroker(tmp_path_factory.mktemp(name)) for name in ("east", "west"))
    east.start()
    west.start()
    yield east, west
    east.stop()
    west.stop()


@pytest.mark.tier("default")
@pytest.mark.parametrize("engine", ["records", pytest.param("batches", marks=pytest.mark.tier("long"))])
def test_the_documented_path_is_the_one_taken(brokers: tuple[EmbeddedBroker, EmbeddedBroker], engine: str) -> None:
    east, west = brokers
    text = FLOW.format(east=east.bootstrap, west=west.bootstrap, engine=engine)
    loaded = config.load_text(text, env={}, name="flows.yaml")
    clients.create_topic(east.bootstrap, "orders")
    source = clients.producer(east.bootstrap)
    visited: dict[str, set[str]] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            visited.setdefault(threading.current_thread().name, set()).add(frame.f_globals.get("__name__", ""))

    log = structlog.get_logger()
    worker = FlowWorker(loaded.flows["orders"], loaded, wiring.parts(lambda step: None)(log), log)
    running = threading.Thread(target=worker.run)
    threading.setprofile(note)

    def entered() -> set[str]:
        return {name for modules in list(visited.values()) for name in list(modules) if name.startswith(PACKAGE)}

    steps = set(walk(OF_RECORDS if engine == "records" else OF_BATCHES))
    beside = set(_modules(OF_RECORDS.partition("\nCalled on the way")[2]))
    if engine == "batches":
        beside |= set(_modules(OF_BATCHES)) - steps
    try:
        running.start()
        clients.put(source, "orders", b"first")
        clients.wait_value(west.bootstrap, "east.orders", 0, b"first")
        for modules in list(visited.values()):
            modules.clear()
        clients.put(source, "orders", b"second")
        wait_until(lambda: steps <= entered(), "its path", lambda: f"not taken: {sorted(steps - entered())}")
        copying = {name for name in entered() if name.split(".")[1] in OF_A_LANE}
    finally:
        threading.setprofile(None)
        worker.stop()
        running.join(WAIT_S_MAX)
    assert not running.is_alive()
    assert 5 < len(steps) <= FILES_MAX
    copying = {name for name in copying if not name.startswith(OF_BATCHES_WITHOUT_IO)}
    assert copying - steps - beside == set(), "modules that the section doesn't name"
    assert all(find_spec(name) for name in beside)
