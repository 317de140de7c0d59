"""Creates the security components of a broker for `Broker` and `Server`: TLS, users, credentials, authorizer."""

from __future__ import annotations

import ssl

from embedded_broker.config.settings import BrokerConfig
from embedded_broker.metadata.metadata_log import MetadataLog
from embedded_broker.security.authorizer import Authorizer
from embedded_broker.security.credentials import Credentials
from embedded_broker.security.sasl import begin
from embedded_broker.security.session import Exchange
from embedded_broker.security.users import Users, read_users


class Security:
    """Users, credentials and authorizer of one broker."""

    def __init__(self, config: BrokerConfig, metadata: MetadataLog) -> None:
        """Raises BadUsers or OSError for a users file that can't be read."""
        self.mechanisms = config.sasl_mechanisms
        self._users = Users() if config.users_file is None else read_users(config.users_file)
        self.credentials = Credentials(metadata, self._users)
        self.authorizer = Authorizer(config, metadata) if config.authorizer else None

    def exchange(self, mechanism: str, again: bool = False) -> Exchange:
        """A new exchange by one of `mechanisms`; `again`: it isn't the connection's first."""
        return begin(mechanism, self._users, self.credentials.find, again)


def tls_context(config: BrokerConfig) -> ssl.SSLContext | None:
    """For the listeners with TLS, if there are any. Raises OSError or ValueError."""
    from embedded_broker.security.tls import server_context

    if not any(listener.protocol.is_encrypted for listener in config.listening):
        return None
    if config.tls is None:
        raise ValueError("a listener with TLS needs a certificate and its key")
    return server_context(config.tls)
