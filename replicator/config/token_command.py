"""A cluster's token command: a program that prints an OAUTHBEARER token. What it may be combined with.

Used by `sections`, `load` and whoever logs in. The command is always that of the file which the process has read: it is
stored nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from replicator.config.failover_settings import Command
from replicator.config.properties import Problem
from replicator.config.units import MILLISECONDS

KEY = "token_command"


class TokenCommandSettings(BaseModel):
    """The keys of a cluster that say how its tokens are printed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    token_command: Command = Field(
        default=(),
        description="Program and arguments, each a word of its own, that prints a token for sasl.mechanism: "
        "OAUTHBEARER on standard output. No shell reads it; it has the environment of this program. It is run before "
        "a token expires, and its arguments are shown: secrets belong into files or the environment. Empty: none.",
    )
    token_timeout_ms: Annotated[int, Field(strict=True, ge=100, le=60_000), MILLISECONDS] = Field(
        default=10_000,
        description="The token command, and all that it has started, is killed this long after its start.",
    )
    token_life_ms: Annotated[int, Field(strict=True, ge=1000, le=24 * 3_600_000), MILLISECONDS] = Field(
        default=300_000,
        description="How long a token of the command holds that doesn't say so itself: one that is no JWT with exp.",
    )


def check(command: tuple[str, ...], resolved: Mapping[str, str]) -> Iterator[Problem]:
    """Yield what stands against a token command. `resolved`: the cluster's properties."""
    if not command:
        return
    mechanism = resolved.get("sasl.mechanisms", resolved.get("sasl.mechanism", "GSSAPI")).upper()
    protocol = resolved.get("security.protocol", "plaintext").upper()
    if not protocol.startswith("SASL") or mechanism != "OAUTHBEARER":
        yield Problem(KEY, "needs security.protocol: SASL_SSL and sasl.mechanism: OAUTHBEARER among the properties")
        return
    others = ("sasl.oauthbearer.method", "enable.sasl.oauthbearer.unsecure.jwt", "sasl.oauthbearer.config")
    found = [name for name in others if resolved.get(name, "default").lower() not in ("default", "false")]
    if found:
        yield Problem(KEY, f"tokens come from one place: leave out {' and '.join(found)}, or this")
