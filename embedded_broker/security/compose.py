"""Creates the security components of a broker for `Broker` and `Server`: TLS, users, credentials, authorizer."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from embedded_broker.config.settings import BrokerConfig
from embedded_broker.metadata.metadata_log import MetadataLog
from embedded_broker.runtime.clock import Clock
from embedded_broker.security.authorizer import Authorizer
from embedded_broker.security.credentials import Credentials
from embedded_broker.security.sasl import PLAIN, PlainExchange, ScramExchange
from embedded_broker.security.session import Exchange
from embedded_broker.security.users import Users, read_users

if TYPE_CHECKING:
    from embedded_broker.security.oauth import Tokens


OAUTHBEARER = "OAUTHBEARER"


class Security:
    """Users, credentials and authorizer of one broker."""

    def __init__(self, config: BrokerConfig, metadata: MetadataLog, clock: Clock) -> None:
        """Raises BadUsers, OSError or ValueError for a users or key file that can't be read; ImportError if OAUTHBEARER
        is offered and PyJWT isn't installed."""
        self.mechanisms, self._clock = config.sasl_mechanisms, clock
        self._tokens: Tokens | None = None
        if OAUTHBEARER in self.mechanisms:
            from embedded_broker.security.oauth import tokens

            self._tokens = tokens(config.oauth, clock.now_ms)
        self._users = Users() if config.users_file is None else read_users(config.users_file)
        self.credentials = Credentials(metadata, self._users)
        self.authorizer = Authorizer(config, metadata) if config.authorizer else None

    def exchange(self, mechanism: str, again: bool = False) -> Exchange:
        """Make a new exchange by one of `mechanisms`; `again`: it isn't the connection's first."""
        if mechanism == PLAIN:
            return PlainExchange(self._users)
        if mechanism == OAUTHBEARER:
            from embedded_broker.security.oauth import OAuthExchange

            assert self._tokens is not None
            return OAuthExchange(self._tokens, self._clock.now_ms)
        return ScramExchange(mechanism, lambda name: self.credentials.find(mechanism, name), again)


def tls_context(config: BrokerConfig) -> ssl.SSLContext | None:
    """Make the context for the listeners with TLS, if there are any. Raises OSError or ValueError."""
    from embedded_broker.security.tls import server_context

    if not any(listener.protocol.is_encrypted for listener in config.listening):
        return None
    if config.tls is None:
        raise ValueError("a listener with TLS needs a certificate and its key")
    return server_context(config.tls)
