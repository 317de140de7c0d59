"""What handlers are given: the client that asks, and those parts of the broker that a handler names.

A handler's first parameter has the type of what it needs: one of the protocols here, or its own `Needs` of several.
`Broker` has all of them (`Parts`); a test can give a handler less. The second is the client, a `net.Connection`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from embedded_broker.api.fetch_sessions import FetchSessions
    from embedded_broker.clock import Clock
    from embedded_broker.config.listeners import Endpoint
    from embedded_broker.config.settings import BrokerConfig
    from embedded_broker.coordinators.groups import GroupCoordinator
    from embedded_broker.coordinators.transactions import TransactionCoordinator
    from embedded_broker.fair_share import Share
    from embedded_broker.metadata.client_quotas import ClientQuotas
    from embedded_broker.metadata.dynamic_configs import DynamicConfigs
    from embedded_broker.metadata.group_configs import GroupConfigs
    from embedded_broker.metadata.metadata_log import MetadataLog
    from embedded_broker.metadata.topics import Topics
    from embedded_broker.produce.batch_checks import BatchChecks
    from embedded_broker.security.compose import Security
    from embedded_broker.security.session import Session
    from embedded_broker.storage.flush_scheduler import FlushScheduler


class Client(Protocol):
    """The connection that a request came by."""

    @property
    def session(self) -> Session:
        """Who is logged in, and since when."""
        ...

    @property
    def client_id(self) -> str:
        """Of the request being handled."""
        ...

    @property
    def client_host(self) -> str:
        """The client's address."""
        ...

    @property
    def advertised(self) -> tuple[str, int]:
        """(host, port) that this client knows the broker by."""
        ...

    def share(self) -> Share:
        """The use that the request being handled makes of the event loop, and of memory for its answer."""
        ...

    def expect_tokens(self) -> None:
        """A login has begun or ended: its tokens may come without headers."""
        ...

    def refuse(self, reason: str) -> None:
        """Close the connection because of what the client did."""
        ...


class HasConfig(Protocol):
    """The settings of the broker."""

    @property
    def config(self) -> BrokerConfig: ...


class HasEndpoints(Protocol):
    """The listeners with their real ports."""

    @property
    def endpoints(self) -> Sequence[Endpoint]: ...


class HasClock(Protocol):
    """Wall time."""

    @property
    def clock(self) -> Clock: ...


class HasNewUuid(Protocol):
    """Random ids."""

    def new_uuid(self) -> UUID: ...


class HasDiskSpace(Protocol):
    """Whether the disk isn't full."""

    @property
    def has_disk_space(self) -> bool: ...


class HasTopics(Protocol):
    """Topics and their partitions."""

    @property
    def topics(self) -> Topics: ...


class HasGroupConfigs(Protocol):
    """Configs of groups."""

    @property
    def group_configs(self) -> GroupConfigs: ...


class HasDynamicConfigs(Protocol):
    """Configs of brokers that are set while they run."""

    @property
    def dynamic_configs(self) -> DynamicConfigs: ...


class HasClientQuotas(Protocol):
    """Client quotas that are set."""

    @property
    def client_quotas(self) -> ClientQuotas: ...


class HasMetadata(Protocol):
    """The metadata log: the cluster's id, and its own length."""

    @property
    def metadata(self) -> MetadataLog: ...


class HasFlushScheduler(Protocol):
    """Makes partitions durable."""

    @property
    def flush_scheduler(self) -> FlushScheduler: ...


class HasFetchSessions(Protocol):
    """Fetch sessions of all clients."""

    @property
    def fetch_sessions(self) -> FetchSessions: ...


class HasGroups(Protocol):
    """The group coordinator."""

    @property
    def groups(self) -> GroupCoordinator: ...


class HasTransactions(Protocol):
    """The transaction coordinator."""

    @property
    def transactions(self) -> TransactionCoordinator: ...


class HasSecurity(Protocol):
    """Logins, credentials and ACLs."""

    @property
    def security(self) -> Security: ...


class HasBatchChecks(Protocol):
    """Checks of clients' batches."""

    @property
    def batch_checks(self) -> BatchChecks: ...


class Parts(
    HasConfig,
    HasEndpoints,
    HasClock,
    HasNewUuid,
    HasDiskSpace,
    HasTopics,
    HasGroupConfigs,
    HasDynamicConfigs,
    HasClientQuotas,
    HasMetadata,
    HasFlushScheduler,
    HasFetchSessions,
    HasGroups,
    HasTransactions,
    HasSecurity,
    HasBatchChecks,
    Protocol,
):
    """All that handlers may ask for."""
