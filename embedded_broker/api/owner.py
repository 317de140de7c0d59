"""Whom what a client leaves behind counts for: asked by handlers of requests that are remembered."""

from __future__ import annotations

from embedded_broker.api.ports import Client
from embedded_broker.state.owners import Owner


def owner_of(client: Client) -> Owner:
    """Return the client's connection."""
    return Owner(client.client_host, client.session.client_port)
