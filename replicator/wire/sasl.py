"""SASL logins: what a client and a broker say to each other. Sans-I/O. Used by `connection`.

PLAIN is RFC 4616, SCRAM RFC 5802 as Kafka has it (KIP-84), without channel binding, OAUTHBEARER RFC 7628 (KIP-255).
"""

from __future__ import annotations

import re
from collections.abc import Generator

ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 65_536
"""Work that a broker may ask for with SCRAM. Kafka keeps passwords with 4,096 to 16,384 (ScramMechanism), and its own
client refuses less than the former: the password could be guessed from what is sent."""
_ITERATIONS = re.compile(r"(?:^|,)i=(\d{1,10})(?:,|$)")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

Tokens = Generator[bytes, bytes, None]
"""Yields what the client says, and is sent what the broker answers."""


class BadLogin(ValueError):
    """The broker's part of a login is wrong: it doesn't know the password either, or doesn't keep to the protocol."""


def login(mechanism: str, username: str, password: str) -> Tokens:
    """Yield what is said with one of `MECHANISMS`. Raises BadLogin on the way."""
    if mechanism == "PLAIN":
        yield b"\0".join((b"", username.encode(), password.encode()))
        return
    from scramp import ScramClient, ScramException  # takes 15 ms, and most clusters ask for something else

    try:
        client = ScramClient([mechanism], username, password)
        server_first = _text((yield client.get_client_first().encode()))
        iterations = _ITERATIONS.search(server_first)
        if iterations is None or not ITERATIONS_MIN <= int(iterations[1]) <= ITERATIONS_MAX:
            raise BadLogin(f"the broker doesn't ask for {ITERATIONS_MIN} to {ITERATIONS_MAX} iterations")
        client.set_server_first(server_first)
        client.set_server_final(_text((yield client.get_client_final().encode())))
    except ScramException as error:
        raise BadLogin(str(error)) from error


def show_token(first_message: bytes) -> Tokens:
    """Say OAUTHBEARER's only message. Raises BadLogin where the broker says what is wrong with it."""
    refused = yield first_message
    if refused:
        yield b"\x01"
        raise BadLogin(_text(refused))


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError as error:
        raise BadLogin("a token that isn't UTF-8") from error
