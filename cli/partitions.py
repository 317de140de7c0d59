"""--partition TOPIC:NUMBER, for commands that concern single source partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from replicator.model.partition import Partition

Command = TypeVar("Command", bound=Callable[..., Any])


def partition_option(help_: str) -> Callable[[Command], Command]:
    """Add --partition, repeatable; its values are `Partition`."""
    return click.option(
        "--partition", "partitions", multiple=True, metavar="TOPIC:NUMBER", callback=_parsed, help=help_
    )


def _parsed(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> tuple[Partition, ...]:
    from replicator.model.partition import Partition

    found = []
    for text in texts:
        topic, colon, number = text.rpartition(":")
        if not colon or not topic or not (number.isascii() and number.isdecimal()):
            raise click.BadParameter(f"expected a topic and a number, such as orders:0, not {text}", ctx, param)
        found.append(Partition(topic, int(number)))
    return tuple(found)
