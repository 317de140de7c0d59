"""`eos-replicate broker`: the embedded broker alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from embedded_broker.config import BrokerConfig

FAILED = 70


@click.command(
    epilog="""\b
Examples:
  eos-replicate broker --data-dir /tmp/kafka
  eos-replicate broker --data-dir /tmp/kafka --listen 0.0.0.0:9092 --advertise my-host
  eos-replicate broker --data-dir /tmp/kafka --listen 127.0.0.1:0 --json

\b
Says `listening on HOST:PORT` once it accepts connections. SIGTERM stops it; a kill at any moment
loses nothing that was acknowledged.
"""
)
@click.option(
    "--data-dir",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where everything is kept; created if missing.",
)
@click.option("--listen", default="127.0.0.1:9092", show_default=True, help="HOST:PORT; port 0 takes a free one.")
@click.option("--advertise", metavar="HOST", help="Host that clients are told, if not the one listened on.")
@click.option(
    "--fsync",
    type=click.Choice(["always", "interval", "never"]),
    default="always",
    show_default=True,
    help="When data is forced to disk: before each acknowledgement, 5 times a second, or when the system likes.",
)
@click.option("--auto-create/--no-auto-create", default=False, help="Create topics that clients ask for.")
@click.option(
    "--config",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting under the name it has in Kafka, such as offsets.retention.minutes=60. May be given often.",
)
@click.option("--json", "as_json", is_flag=True, help="Say the address as one JSON object.")
def broker(
    data_dir: Path,
    listen: str,
    advertise: str | None,
    fsync: str,
    auto_create: bool,
    settings: tuple[str, ...],
    as_json: bool,
) -> int:
    """Run the built-in Kafka broker alone.

    It speaks Kafka's protocol to any client: idempotent and transactional producers, consumer groups, admin tools.
    """
    from embedded_broker.config import BrokerConfig, Fsync

    host, port = _address(listen)
    config = BrokerConfig(
        data_dir, host, port, advertised_host=advertise, fsync=Fsync(fsync), auto_create_topics=auto_create
    )
    return asyncio.run(_run(_configured(config, settings), as_json))


def _configured(config: BrokerConfig, settings: tuple[str, ...]) -> BrokerConfig:
    from embedded_broker.broker_configs import configured
    from embedded_broker.topic_configs import InvalidConfig

    pairs = [setting.partition("=") for setting in settings]
    for name, equals, _ in pairs:
        if not equals:
            raise click.BadParameter(f"{name!r} is not NAME=VALUE", param_hint="--config")
    try:
        return configured(config, {name.strip(): value.strip() for name, _, value in pairs})
    except InvalidConfig as error:
        raise click.BadParameter(str(error), param_hint="--config") from error


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise click.BadParameter(f"{listen!r} is not HOST:PORT", param_hint="--listen")
    return host.strip("[]") or "0.0.0.0", int(port)


async def _run(config: object, as_json: bool) -> int:
    """Serve until a signal comes. A second one ends the process at once: what is acknowledged is on disk."""
    from embedded_broker.broker import Broker, DataDirInUse
    from embedded_broker.config import BrokerConfig
    from embedded_broker.log.segment import CorruptLog
    from embedded_broker.server import serve

    assert isinstance(config, BrokerConfig)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, lambda: os._exit(0) if stop.is_set() else stop.set())
    ready: asyncio.Future[int] = loop.create_future()
    ready.add_done_callback(lambda done: _say(config.host, done.result(), as_json))
    try:
        failure = await serve(Broker(config), ready, stop)
    except DataDirInUse as error:
        raise click.ClickException(str(error)) from error
    except (CorruptLog, OSError) as error:
        raise click.ClickException(f"the broker cannot start: {error}") from error
    if failure is not None:
        click.echo(f"the broker cannot go on: {failure!r}", err=True)
        return FAILED
    return 0


def _say(host: str, port: int, as_json: bool) -> None:
    address = f"{host}:{port}"
    click.echo(json.dumps({"event": "listening", "address": address}) if as_json else f"listening on {address}")


if __name__ == "__main__":
    broker()
