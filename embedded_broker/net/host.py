"""What a connection needs of the server around it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, TypeVar

from embedded_broker.config.settings import BrokerConfig
from embedded_broker.net.budget import Budget, Holder
from embedded_broker.net.connection_quotas import Turn
from embedded_broker.runtime.fair_share import FairShare
from embedded_broker.wire.framing import WithoutRecords
from embedded_broker.wire.responses import Encoded
from embedded_broker.wire.schema import Frame

C = TypeVar("C", bound=Holder)


class ConnectionHost(Protocol[C]):
    """The server around its connections."""

    requests: Budget[C]
    answers: Budget[C]
    inbox: memoryview
    """What all connections read into; nothing of it is used after the call that brought it."""

    without_records: WithoutRecords

    @property
    def config(self) -> BrokerConfig:
        """The settings of the broker."""
        ...

    @property
    def fair_share(self) -> FairShare:
        """Of the event loop."""
        ...

    def admit(self, connection: C) -> Turn:
        """Register a new connection, unless it is refused at once."""
        ...

    def known(self, connection: C) -> None:
        """Note that a connection's client has logged in, or needn't."""
        ...

    def gone(self, connection: C, why: str) -> None:
        """Note that a connection has closed."""
        ...

    def unsent_bytes_max(self) -> int:
        """Return how much one client may leave unread and still get further answers."""
        ...

    async def dispatch(self, connection: C, frame: Frame) -> Awaitable[Encoded | None] | Encoded | None:
        """Handle one request: the response, a task that returns it, or None. Raises CloseConnection."""
        ...

    def connection_failed(self, connection: C, error: BaseException) -> None:
        """Note that a request ended its connection with an error."""
        ...
