"""A plane by itself, between the two brokers of the session: each test runs on `records` and on `batches`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from replicator.config import Cluster, Delivery, Flow, Properties
from replicator.config.models import Limits
from replicator.kafka.coordinator_patience import CoordinatorPatience
from replicator.model import names
from replicator.model.errors import ReplicatorError
from replicator.model.partition import Partition, Seek
from replicator.planes.batches_io.budget import FetchBudget
from replicator.planes.batches_io.plane import BatchesPlane
from replicator.planes.contract import Copied, PollResult, ReadPlan
from replicator.planes.records.losses import LostRecords
from replicator.planes.records.plane import RecordsPlane
from replicator.planes.settings import PlaneSettings

POLL_S_MAX = 40.0
FETCHED_BYTES_MAX = 64 * 1024 * 1024
SOON_S = 20.0  # not after a timeout: a busy machine may stop everything for seconds


def make_flow(source: str, target: str, **settings: Any) -> Flow:
    """A flow between two addresses; `limits` as of the flow file, `login` are more properties of both clusters."""
    login = settings.pop("login", {})
    limits = {"request_timeout_ms": 60_000, "transaction_timeout_ms": 120_000, **settings.pop("limits", {})}
    return Flow(
        name=f"plane-{uuid.uuid4().hex[:8]}",
        source=Cluster(name="east", properties=Properties({"bootstrap.servers": source, **login})),
        target=Cluster(name="west", properties=Properties({"bootstrap.servers": target, **login})),
        topics=("^.*",),
        limits=Limits(**limits),
        **settings,
    )


@dataclass
class Driven:
    """A plane with what it said by the way. `copied` is what `read` handed over so far."""

    plane: RecordsPlane | BatchesPlane
    flow: Flow
    routes: Mapping[Partition, Partition]
    said: list[str]
    lost: list[LostRecords]
    failed: dict[Partition, ReplicatorError] = field(default_factory=dict)

    def seek(self, *, every_ack: bool = False, start: int = 0, epoch: int = -1) -> None:
        """Read all source partitions from `start`."""
        read_plans = {at: ReadPlan(Seek(start, epoch), every_ack=every_ack) for at in self.routes}
        self.plane.seek(read_plans)

    def read(self, records: int, until: Callable[[PollResult], bool] = lambda result: False) -> int:
        """Poll until so many records were handed over, or `until` says of a result that it is enough."""
        count, deadline = 0, time.monotonic() + POLL_S_MAX
        while count < records:
            result = self.plane.poll(5_000, 0.1)
            count += result.records
            self.failed |= result.failed
            if until(result):
                return count
            assert time.monotonic() < deadline, f"{count} of {records} records; {self.said[-5:]}"
        return count

    def read_and_flush(self, records: int) -> dict[Partition, Copied]:
        """Read so many records and wait for their acks."""
        self.read(records)
        return self.plane.flush().copied


MakePlane = Callable[..., Driven]


@pytest.fixture(params=["records", "batches"])
def engine(request: pytest.FixtureRequest) -> str:
    """Which plane a test runs on."""
    return str(request.param)


def only_records(why: str) -> Callable[[Any], Any]:
    """Mark a test that holds for the records plane alone, and say `why`."""
    assert why
    return pytest.mark.parametrize("engine", ["records"], indirect=True)


def made_plane(
    engine: str,
    flow: Flow,
    transactional_id: str,
    routes: Mapping[Partition, Partition],
    said: list[str],
    lost: list[LostRecords] | None = None,
    limits: tuple[int, int] = (1_000_000, 1_048_588),
    patience: CoordinatorPatience | None = None,
) -> RecordsPlane | BatchesPlane:
    """A plane of this engine; `limits` are `batch_bytes_max` and `record_bytes_max`."""
    settings = PlaneSettings(flow, transactional_id, 0, routes, *limits, patience=patience)
    if engine == "records":
        return RecordsPlane(settings, said.append, ([] if lost is None else lost).append)
    return BatchesPlane(settings, FetchBudget(FETCHED_BYTES_MAX), said.append)


@pytest.fixture
def make_plane(source: BrokerHandle, target: BrokerHandle, engine: str) -> Iterator[MakePlane]:
    """Makes fenced planes: `make_plane({source topic: (partitions, target topic)}, ...)`; topics exist already."""
    made: list[Driven] = []

    def make(
        topics: Mapping[str, tuple[int, str]],
        *,
        flow: Flow | None = None,
        batch_bytes_max: int = 1_000_000,
        record_bytes_max: int = 1_048_588,
        delivery: Delivery = Delivery.EXACTLY_ONCE,
        other_engine: bool = False,
        patience: CoordinatorPatience | None = None,
    ) -> Driven:
        flow = flow or make_flow(source.bootstrap, target.bootstrap, delivery=delivery)
        routes = {
            Partition(name, number): Partition(copy, number)
            for name, (count, copy) in topics.items()
            for number in range(count)
        }
        said: list[str] = []
        lost: list[LostRecords] = []
        used = {"records": "batches", "batches": "records"}[engine] if other_engine else engine
        lane = names.lane_id(flow.name, 1, 0)
        plane = made_plane(used, flow, lane, routes, said, lost, (batch_bytes_max, record_bytes_max), patience)
        made.append(Driven(plane, flow, routes, said, lost))
        plane.fence()
        return made[-1]

    yield make
    for driven in made:
        driven.plane.close()


@pytest.fixture
def pair(source: BrokerHandle, target: BrokerHandle, unique: Callable[[str], str]) -> Callable[..., tuple[str, str]]:
    """Makes a source topic and its copy: `pair(partitions, **target configs with underscores)`."""

    def make(partitions: int = 1, source_configs: dict[str, str] | None = None, **configs: str) -> tuple[str, str]:
        name = unique("plane")
        clients.create_topic(source.bootstrap, name, partitions, source_configs)
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        clients.create_topic(target.bootstrap, f"{name}.copy", partitions, dotted)
        return name, f"{name}.copy"

    return make
