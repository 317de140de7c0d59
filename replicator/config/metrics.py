"""What is wrong with the section `metrics` beyond the form of its keys. Pure but for reading the token's file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from replicator.config import properties
from replicator.config.models import MetricsSection
from replicator.config.properties import Problem


def token(section: Any, env: Mapping[str, str], directory: Path) -> tuple[str, list[Problem]]:
    """Look the token of the `section`, as it is written, up where it comes from; and what is wrong with it.

    Empty where there is none, or no text, which is a fault of the key's form.
    """
    written = section.get("token") if isinstance(section, dict) else None
    if not isinstance(written, str) or not written:
        return "", []
    if properties.is_written_in_the_file(written):
        return "", [Problem("token", "a secret written in the file; use ${NAME} or file:PATH")]
    resolved, problems = properties.resolve({"token": written}, env, directory)
    if not problems and not resolved["token"]:
        problems.append(Problem("token", "there is nothing in it"))
    return resolved.get("token", ""), problems


def check(metrics: MetricsSection, *, token_written: bool) -> Iterator[Problem]:
    """Yield what is wrong with the address. `token_written`: there is a token, maybe one with a fault."""
    listen = metrics.listen
    if listen and not properties.is_address(listen):
        yield Problem("listen", f"expected an address such as 127.0.0.1:9308, not {listen!r}")
    elif listen and not properties.is_loopback(listen) and not token_written:
        yield Problem("listen", f"{listen} is no loopback address, so metrics.token is needed")
