"""The composition root: creates the parts of a broker, starts and stops them in order.

Run by `serve` (the command `broker`), by `testing.broker_run` and by `simulation.machine`. The event loop owns all
state.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import cast

from embedded_broker.api.fetch_sessions import FetchSessions
from embedded_broker.config.listeners import Endpoint
from embedded_broker.config.settings import BrokerConfig, Fsync
from embedded_broker.coordinators.compose import compose
from embedded_broker.coordinators.groups import GroupCoordinator
from embedded_broker.coordinators.ports import CoordinatorHost, GroupConfig, TransactionConfig
from embedded_broker.coordinators.transactions import TransactionCoordinator
from embedded_broker.metadata.changes import Changes
from embedded_broker.metadata.client_quotas import ClientQuotas
from embedded_broker.metadata.dynamic_configs import DynamicConfigs
from embedded_broker.metadata.group_configs import GroupConfigs
from embedded_broker.metadata.metadata_log import MetadataLog
from embedded_broker.metadata.topic_names import INTERNAL, OFFSETS_TOPIC, TRANSACTION_TOPIC
from embedded_broker.metadata.topics import Topics
from embedded_broker.net.coding import Coding
from embedded_broker.net.server import InjectedFaults, Server
from embedded_broker.produce.batch_checks import BatchChecks
from embedded_broker.runtime.clock import Clock, SystemClock
from embedded_broker.runtime.fair_share import FairShare
from embedded_broker.runtime.workers import Threads, Workers
from embedded_broker.security.compose import Security
from embedded_broker.state.consumer_types import ConsumerGroupConfig
from embedded_broker.state.producer_quota import ProducerQuota
from embedded_broker.storage.cleaner import Compaction
from embedded_broker.storage.disk_space import DiskSpace
from embedded_broker.storage.failures import call_all, is_disk_failure
from embedded_broker.storage.flush_scheduler import FlushScheduler
from embedded_broker.storage.log.fs import FileSystem, Lock, RealFileSystem
from embedded_broker.storage.log.open_files import OpenFiles
from embedded_broker.storage.log.open_files import for_logs as open_files_for_logs
from embedded_broker.storage.partition import Partition
from embedded_broker.storage.retention import Retention

METADATA = "__cluster_metadata"


class DataDirInUse(Exception):
    """Another process holds the lock of the data directory."""


class Broker:
    """One broker. `start` before use, `stop` after; `failed` is set when it can't go on."""

    groups: GroupCoordinator
    transactions: TransactionCoordinator
    topics: Topics
    metadata: MetadataLog
    group_configs: GroupConfigs
    dynamic_configs: DynamicConfigs
    client_quotas: ClientQuotas
    security: Security
    faults: InjectedFaults | None = None
    """Set by tests only, before it is served."""

    def __init__(
        self,
        config: BrokerConfig,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
        workers: Callable[[int, str], Workers] = Threads,
    ) -> None:
        """Filesystem, clock, random ids and threads are injected, so that tests and simulations can control them."""
        self.config = config
        open_files = OpenFiles(open_files_for_logs())
        self.fs: FileSystem = fs or RealFileSystem(open_files)
        self.clock: Clock = clock or SystemClock()
        self.thresholds = thresholds = config.thresholds
        self.new_uuid = new_uuid
        self.port = config.listening[0].port
        self.endpoints: list[Endpoint] = []
        """Filled by the server, which knows the real ports."""
        self.flush_scheduler = FlushScheduler(
            config.fsync, config.fsync_interval_ms, self.fail, config.scan_bytes_max, workers, thresholds
        )
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.errors = 0
        """Exceptions that were not expected, and have not ended the broker."""
        self.disk_space = DiskSpace(self.fs, config.data_dir, self.fail, open_files, thresholds)
        self.changes = Changes(self.fail)
        self._lock: Lock
        self._retention: Retention
        self._metadata_log: Partition
        self.fetch_sessions = FetchSessions(
            new_uuid, thresholds.fetch_sessions_max, idle_s_min=thresholds.fetch_session_idle_s_min
        )
        self.fair_share = FairShare(thresholds.slice_steps)
        self.batch_checks = BatchChecks(thresholds.at_once_bytes_max, workers)
        self.coding = Coding(thresholds.items_at_once_max, workers)

    async def start(self) -> None:
        """Recover all state, and complete what a crash interrupted. Raises DataDirInUse, CorruptLog, OSError."""
        self._lock = self._lock_directory()
        self.disk_space.start()
        with self.disk_space.open_files.for_itself():
            self._recover_metadata()
        await self.metadata.start()
        self.security = Security(self.config, self.metadata, self.clock)
        directory = self.config.data_dir / "partitions"
        limit = self.config.partitions_max
        self.topics = Topics(
            self.fs,
            directory,
            self.metadata,
            self.flush_scheduler,
            self.disk_space,
            limit,
            self.clock.now_ms,
            self.new_uuid,
            self.thresholds,
            ProducerQuota(self.config.producers_max),
        )
        self.dynamic_configs = DynamicConfigs(self.config, self.metadata, self.topics.set_defaults)
        self.dynamic_configs.load()
        self.client_quotas = ClientQuotas(self.metadata)
        self._compose()
        with self.disk_space.open_files.for_itself():  # what is there is served
            self.topics.recover({TRANSACTION_TOPIC: self.transactions.replay, OFFSETS_TOPIC: self.groups.replay})
        await self.changes.finish("internal topics", self._create_internal_topics)
        self.group_configs = GroupConfigs(self.config, self.metadata, self.groups.configure)
        self.group_configs.load()
        await self.groups.start()
        await self.transactions.start()
        compaction = Compaction(self.fs, self.flush_scheduler, self.disk_space, self.clock, self.thresholds)
        self._retention = Retention(
            self.config,
            self.topics.partitions,
            compaction,
            self.flush_scheduler,
            self.clock,
            self.fair_share,
            self.fail,
        )
        self._retention.start()

    async def _create_internal_topics(self) -> None:
        configs = {"cleanup.policy": "compact", "segment.bytes": str(self.thresholds.internal_segment_bytes)}
        async with self.changes.one():
            for name in sorted(INTERNAL):
                if self.topics.get(name) is None:
                    await self.topics.create(name, 1, configs)

    def _recover_metadata(self) -> None:
        self.metadata = MetadataLog(
            self.flush_scheduler,
            self.clock,
            self.new_uuid,
            self.thresholds.metadata_dead_records_max,
            self.changes,
            self.config.metadata_bytes_max,
        )
        self._metadata_log = Partition.open(
            self.fs,
            self.config.data_dir / METADATA,
            METADATA,
            0,
            leader_epoch=0,
            segment_bytes=self.thresholds.internal_segment_bytes,
            disk_space=self.disk_space,
            internal=True,
            on_batch=self.metadata.replay,
            thresholds=self.thresholds,
        )
        self.metadata.opened(self._metadata_log)

    def _compose(self) -> None:
        config = self.config
        groups = GroupConfig(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            min_session_timeout_ms=config.group_session_timeout_ms_min,
            max_session_timeout_ms=config.group_session_timeout_ms_max,
            members_max_bytes=config.group_members_bytes_max,
            offset_metadata_max_bytes=config.offset_metadata_bytes_max,
            offsets_max_bytes=config.offsets_bytes_max,
            offsets_retention_ms=config.offsets_retention_ms,
            consumer=ConsumerGroupConfig(
                config.group_consumer_session_timeout_ms, config.group_consumer_heartbeat_interval_ms
            ),
        )
        transactions = TransactionConfig(
            config.transaction_timeout_ms_max,
            config.transactional_id_expiration_ms,
            config.transactional_ids_bytes_max,
            aborts_hanging=config.fsync is not Fsync.ALWAYS,
        )
        # Every partition they have is from here, so `durable` is given none of another kind.
        self.groups, self.transactions = compose(cast(CoordinatorHost, self), groups, transactions)

    def internal_log(self, name: str) -> Partition:
        """Return the only partition of an internal topic."""
        topic = self.topics.get(name)
        assert topic is not None, name
        return topic.partitions[0]

    async def durable(self, partition: Partition) -> None:
        """Return when all that is appended to `partition` so far is on disk. Raises OSError."""
        await self.flush_scheduler.until_durable(partition)

    @property
    def has_disk_space(self) -> bool:
        """Whether the disk isn't full."""
        return not self.disk_space.full

    async def trim(self, partition: Partition, offset: int) -> None:
        """Raise a partition's log start, durably. Raises OSError."""
        async with self.flush_scheduler.exclusive():
            if not partition.closed:
                partition.delete_before(offset)

    def fail(self, error: BaseException) -> None:
        """Report an exception that no request is waiting for, or that isn't the request's fault.

        After one of the disk the broker can't continue: its owner awaits `failed` and stops it. Transactions and group
        changes that are durable are completed at the next start. Any other is told and counted.
        """
        if is_disk_failure(error):
            if not self.failed.done():
                self.failed.set_result(error)
            return
        self.errors += 1
        context = {"message": f"an unexpected error, the {self.errors}. since the start", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    async def stop(self) -> None:
        """Wait for changes and writes in progress, then close all files.

        Raises OSError if something could not be flushed; the directory is free then, too.
        """
        self.flush_scheduler.end_retries()
        await self.changes.stop()
        await self.disk_space.stop()
        await self._retention.stop()
        await self.transactions.stop()
        await self.groups.stop()
        await self.flush_scheduler.stop()
        self.batch_checks.stop()
        self.coding.stop()
        call_all((self.topics.close, self._metadata_log.close, self._lock.release))

    def abandon(self) -> None:
        """Leave the data directory as a kill would: nothing is completed. `fs` closes its files itself."""
        self.flush_scheduler.abandon()
        self.batch_checks.stop()
        self.coding.stop()

    def _lock_directory(self) -> Lock:
        try:
            return self.fs.lock(self.config.data_dir)
        except BlockingIOError as error:
            raise DataDirInUse(f"{self.config.data_dir} is in use by another broker") from error


async def serve(broker: Broker, ready: asyncio.Future[list[Endpoint]], stop: asyncio.Event) -> BaseException | None:
    """Run a broker until `stop` is set or it fails; the failure, if there was one.

    `ready` gets the listeners once connections are accepted. Raises whatever keeps it from starting.
    """
    await broker.start()
    server = Server(broker)
    try:
        await server.start()
        ready.set_result(broker.endpoints)
        broker.failed.add_done_callback(lambda _: stop.set())
        await stop.wait()
    finally:
        await server.stop()
        if broker.failed.done():
            broker.abandon()
        else:
            await broker.stop()
    return broker.failed.result() if broker.failed.done() else None
