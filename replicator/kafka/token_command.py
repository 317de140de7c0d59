"""Tokens that a cluster's `token_command` prints: run, kept, and given to librdkafka's clients.

Invariants
- No shell reads anything, and nothing of what it prints on standard output is ever told. Its arguments aren't either.
  What could be a token isn't told of standard error.
- Whatever is wrong with it is Unreachable: the flow waits, says why, and asks again.

Used by `properties` and by `wire.oauth`.
"""

from __future__ import annotations

import base64
import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from replicator.config import Cluster
from replicator.kafka.child_group import LastBytes, run_child
from replicator.kafka.kept_token import KeptToken
from replicator.model.errors import Unreachable
from replicator.model.printable import printable

TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
"""Of RFC 6750."""
TOKEN_BYTES_MAX, SAID_BYTES_MAX = 256 * 1024, 500
LIKE_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]{65,}=*|[-_a-zA-Z0-9]{8,}(?:\.[-_a-zA-Z0-9]{8,}){2}")
"""Long, or the three parts of a JWT."""
PRINTED_PART = re.compile(r"[-_~+/.a-zA-Z0-9]{8,}")
LIFE_S_MAX = 10 * 365 * 86_400.0  # more than librdkafka's milliseconds since 1970 can hold may stand in a JWT
Oauth = Callable[[str | None], tuple[str, float, str, dict[str, str]]]
"""confluent-kafka's `oauth_cb`: gets sasl.oauthbearer.config; returns a token, its end in seconds since 1970, a
principal's name that nobody reads, and extensions (RFC 7628). Called in a thread of librdkafka's, at about the same
share of a token's life as `kept_token` has; where it raises, librdkafka calls it again 10 s later."""


@dataclass(frozen=True, slots=True)
class _Settings:
    cluster: str
    command: tuple[str, ...]
    timeout_s: float
    life_s: float


def kept_token(cluster: Cluster) -> KeptToken:
    """Return the process's token of a cluster that has a token command."""
    settings = _Settings(
        cluster.name, cluster.token_command, cluster.token_timeout_ms / 1000, cluster.token_life_ms / 1000
    )
    return _kept(settings)


@lru_cache(maxsize=64)
def _kept(settings: _Settings) -> KeptToken:
    kept = _newest[settings.cluster] = KeptToken(lambda: _printed(settings))
    return kept


_newest: dict[str, KeptToken] = {}
"""By the name of the cluster: librdkafka says of a token that it doesn't get no more than that it didn't."""


def no_token(cluster: str) -> str:
    """Say why a cluster's command has printed no token when it was run last; empty where it has, or there is none."""
    kept = _newest.get(cluster)
    return kept.failure if kept is not None else ""


def oauth_properties(cluster: Cluster) -> dict[str, Oauth]:
    """Return what a client of librdkafka needs to be given tokens of the command; nothing where there is none.

    Such a client waits in its constructor for its first token, for 10 s, and then fails in ways that say nothing. So
    that token is here before. Raises Unreachable: it isn't to be had.
    """
    if not cluster.token_command:
        return {}
    kept = kept_token(cluster)
    kept.token()
    said = cluster.properties.get("sasl.oauthbearer.extensions", "")
    extensions = dict(each.partition("=")[::2] for each in said.split(",") if each)
    return {"oauth_cb": lambda _: (*kept.with_end(), "", extensions)}


def life_left_s(token: str) -> float | None:
    """Return for how long a JWT is valid by its own claim; None where it has none, or is none."""
    try:
        payload = token.split(".")[1]
        end_s = float(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"])
        return min(end_s - time.time(), LIFE_S_MAX) if math.isfinite(end_s) else None
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, RecursionError):
        return None


def _printed(settings: _Settings) -> tuple[str, float]:
    where = f"cluster {settings.cluster!r}: no token: token_command {settings.command[0]}"
    printed, said = LastBytes(TOKEN_BYTES_MAX), LastBytes(TOKEN_BYTES_MAX)
    try:
        code = run_child(settings.command, settings.timeout_s, printed, said)
    except (OSError, ValueError) as error:  # ValueError: a NUL in it
        raise Unreachable(f"{where}: it can't be started: {getattr(error, 'strerror', None) or error}") from error
    token = printed.text().strip()
    told = printable(_hidden(said.text(), token).strip())[-SAID_BYTES_MAX:]
    told = f": {told}" if told else ""
    if code is None:
        raise Unreachable(f"{where}: it didn't end within {settings.timeout_s:g} s, and was killed{told}")
    if code:
        how = f"it ended with exit code {code}" if code > 0 else f"it was ended by signal {-code}"
        raise Unreachable(f"{where}: {how}{told}")
    if not token:
        raise Unreachable(f"{where}: it printed nothing{told}")
    if printed.left_out or not TOKEN.fullmatch(token):
        raise Unreachable(f"{where}: what it printed is no token{told}")
    left_s = life_left_s(token)
    if left_s is not None and left_s <= 0:
        raise Unreachable(f"{where}: the token that it printed has expired {-left_s:.0f} s ago{told}")
    return token, settings.life_s if left_s is None else left_s


def _hidden(said: str, printed: str) -> str:
    """Leave out of what it says besides all that it has printed, and what looks like a token."""
    for part in sorted({printed, *PRINTED_PART.findall(printed)}, key=len, reverse=True):
        said = said.replace(part, "[hidden]") if part else said
    return LIKE_TOKEN.sub("[hidden]", said)
