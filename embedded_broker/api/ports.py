"""What every handler is given: the parts of the broker, and the client that asks, which is a `net.Connection`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from embedded_broker.api.fetch_sessions import FetchSessions
    from embedded_broker.config.listeners import Endpoint
    from embedded_broker.config.settings import BrokerConfig
    from embedded_broker.coordinators.groups import GroupCoordinator
    from embedded_broker.coordinators.transactions import TransactionCoordinator
    from embedded_broker.metadata.client_quotas import ClientQuotas
    from embedded_broker.metadata.dynamic_configs import DynamicConfigs
    from embedded_broker.metadata.group_configs import GroupConfigs
    from embedded_broker.metadata.metadata_log import MetadataLog
    from embedded_broker.metadata.topics import Topics
    from embedded_broker.produce.batch_checks import BatchChecks
    from embedded_broker.runtime.clock import Clock
    from embedded_broker.runtime.fair_share import Share
    from embedded_broker.security.compose import Security
    from embedded_broker.security.session import ClientSession
    from embedded_broker.storage.flush_scheduler import FlushScheduler


class Client(Protocol):
    """The connection that a request came by."""

    @property
    def session(self) -> ClientSession:
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
        """Return the use that the request being handled makes of the event loop, and of memory for its answer."""
        ...

    def expect_tokens(self) -> None:
        """Note that a login has begun or ended: its tokens may come without headers."""
        ...

    def refuse(self, reason: str) -> None:
        """Close the connection because of what the client did."""
        ...


class Parts(Protocol):
    """The parts of the broker. `Broker` has them; a test may give a handler an object with those that it uses."""

    @property
    def config(self) -> BrokerConfig:
        """The settings of the broker."""
        ...

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The listeners with their real ports."""
        ...

    @property
    def clock(self) -> Clock:
        """Wall time."""
        ...

    def new_uuid(self) -> UUID:
        """Make a random id."""
        ...

    @property
    def has_disk_space(self) -> bool:
        """Whether the disk isn't full."""
        ...

    @property
    def topics(self) -> Topics:
        """Topics and their partitions."""
        ...

    @property
    def group_configs(self) -> GroupConfigs:
        """Configs of groups."""
        ...

    @property
    def dynamic_configs(self) -> DynamicConfigs:
        """Configs of brokers that are set while they run."""
        ...

    @property
    def client_quotas(self) -> ClientQuotas:
        """Client quotas that are set."""
        ...

    @property
    def metadata(self) -> MetadataLog:
        """The metadata log: the cluster's id, and its own length."""
        ...

    @property
    def flush_scheduler(self) -> FlushScheduler:
        """Makes partitions durable."""
        ...

    @property
    def fetch_sessions(self) -> FetchSessions:
        """Fetch sessions of all clients."""
        ...

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator."""
        ...

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator."""
        ...

    @property
    def security(self) -> Security:
        """Logins, credentials and ACLs."""
        ...

    @property
    def batch_checks(self) -> BatchChecks:
        """Checks of clients' batches."""
        ...
