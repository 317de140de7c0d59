"""`eos-replicate broker`: the embedded broker alone."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import json
import logging
import os
import re
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.quick_imports import quick_imports

if TYPE_CHECKING:
    from embedded_broker.config.listeners import Endpoint, Listener, OAuth, TlsFiles
    from embedded_broker.config.settings import BrokerConfig

FAILED = 70
SWITCH_INTERVAL_S = 0.00005
GC_THRESHOLDS = 2_000, 10, 100
"""Objects, and generations: see `gc.set_threshold`."""
ADVERTISED = re.compile(
    r"(?:(?P<bracketed>\[[0-9a-zA-Z:.%]+\])|(?P<host>[A-Za-z0-9._-]+|[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*))"
    r"(?::(?P<port>\d{1,5}))?"
)
"""A name, an IPv4 address, or an IPv6 address, in brackets if a port follows."""
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    epilog="""\b
Examples:
  eos-replicate broker --data-dir /tmp/kafka
  eos-replicate broker --data-dir /tmp/kafka --listen 127.0.0.1:0 --json
  eos-replicate broker --data-dir /tmp/kafka --listen 0.0.0.0:9092 \\
      --advertise my-host --allow-plain-text
  eos-replicate broker --data-dir /tmp/kafka --listen 127.0.0.1:9092 \\
      --listen SASL_SSL://0.0.0.0:9093 \\
      --tls-certificate broker.pem --tls-key broker.key \\
      --users users.txt --authorizer --super-user User:admin

Prints `listening on HOST:PORT` once it accepts connections. SIGTERM stops it. A kill at any moment loses nothing
that was acknowledged.

\b
Exit codes:
  0   stopped by a signal
  1   it cannot start: the data directory is in use or damaged, the address
      is taken, or a file of passwords is wrong
  2   the command line is wrong
  70  the disk failed: it cannot go on
"""
)
@click.option(
    "--data-dir",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where everything is kept; created if missing.",
)
@click.option(
    "--listen",
    multiple=True,
    metavar="[PROTOCOL://]HOST:PORT",
    default=["127.0.0.1:9092"],
    show_default=True,
    help="PLAINTEXT (the default), SSL, SASL_PLAINTEXT or SASL_SSL; port 0 takes a free one. May be repeated.",
)
@click.option(
    "--advertise",
    multiple=True,
    metavar="HOST[:PORT]",
    help="The address given to clients, if not the one listened on. Once for all listeners, or once for each.",
)
@click.option("--allow-plain-text", is_flag=True, help="Allow listeners without TLS on addresses other than loopback.")
@click.option("--tls-certificate", type=FILE, help="PEM file: the broker's certificate chain.")
@click.option("--tls-key", type=FILE, help="PEM file: its private key. A password is taken from $EOS_TLS_KEY_PASSWORD.")
@click.option("--tls-client-ca", type=FILE, help="PEM file: CAs that may sign client certificates.")
@click.option(
    "--tls-client-auth",
    type=click.Choice(["none", "requested", "required"]),
    help="Whether clients show a certificate; required when --tls-client-ca is given.",
)
@click.option(
    "--sasl-mechanism",
    multiple=True,
    type=click.Choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]),
    help="How clients may log in; all by default but OAUTHBEARER. May be repeated.",
)
@click.option("--oauth-jwks", type=FILE, help="JWKS file: the keys that sign tokens. Needs eos-replicate[oauth].")
@click.option("--oauth-issuer", metavar="NAME", help="Who must have issued a token (its claim iss).")
@click.option("--oauth-audience", metavar="NAME", help="For whom a token must be (its claim aud).")
@click.option(
    "--oauth-unsecured", is_flag=True, help="Take tokens without a signature, which anybody can write: tests."
)
@click.option("--users", type=FILE, help="Lines of name:password. SCRAM users can also be made by kafka-configs.")
@click.option("--authorizer", is_flag=True, help="Enforce ACLs, as made by kafka-acls.")
@click.option("--super-user", multiple=True, metavar="User:NAME", help="May do everything. May be repeated.")
@click.option("--allow-everyone-if-no-acl-found", is_flag=True, help="Resources without any ACL are open to everybody.")
@click.option(
    "--fsync",
    type=click.Choice(["always", "interval", "never"]),
    default="always",
    show_default=True,
    help="When data is forced to disk: before each acknowledgement, 5 times a second, or when the OS does it.",
)
@click.option("--auto-create/--no-auto-create", default=True, help="Create topics that clients ask for, as Kafka does.")
@click.option(
    "--config",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting under the name it has in Kafka, such as offsets.retention.minutes=60. May be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the address as one JSON object.")
def broker(
    data_dir: Path, fsync: str, auto_create: bool, settings: tuple[str, ...], as_json: bool, **options: Any
) -> int:
    """Run the embedded Kafka broker alone.

    It speaks Kafka's protocol to any client: idempotent and transactional producers, consumer groups, admin tools.
    """
    _load()
    from embedded_broker.config.listeners import MECHANISMS
    from embedded_broker.config.settings import BrokerConfig, Fsync

    config = BrokerConfig(
        data_dir,
        listeners=_listeners(options["listen"], options["advertise"], options["allow_plain_text"]),
        allow_plain_text=options["allow_plain_text"],
        tls=_tls(options),
        sasl_mechanisms=options["sasl_mechanism"] or MECHANISMS,
        oauth=_oauth(options),
        users_file=options["users"],
        authorizer=options["authorizer"],
        super_users=frozenset(options["super_user"]),
        allow_everyone_if_no_acl_found=options["allow_everyone_if_no_acl_found"],
        fsync=Fsync(fsync),
        auto_create_topics=auto_create,
    )
    if config.tls is None and any(listener.protocol.is_encrypted for listener in config.listening):
        raise click.UsageError("a listener with TLS needs --tls-certificate and --tls-key")
    return asyncio.run(_run(_configured(config, settings), as_json))


def _load() -> None:
    with quick_imports():
        import embedded_broker.broker  # noqa: F401 - and all that it needs
        from embedded_broker.api.registry import load_all

        load_all()


def _configured(config: BrokerConfig, settings: tuple[str, ...]) -> BrokerConfig:
    from embedded_broker.metadata.broker_configs import configured
    from embedded_broker.metadata.topic_configs import InvalidConfig

    pairs = [setting.partition("=") for setting in settings]
    for name, equals, _ in pairs:
        if not equals:
            raise click.BadParameter(f"{name!r} is not NAME=VALUE", param_hint="--config")
    try:
        return configured(config, {name.strip(): value.strip() for name, _, value in pairs})
    except InvalidConfig as error:
        raise click.BadParameter(str(error), param_hint="--config") from error


def _listeners(listen: tuple[str, ...], advertise: tuple[str, ...], allow_plain_text: bool) -> tuple[Listener, ...]:
    from embedded_broker.config.listeners import BadListener, parse, refuse_open

    try:
        listeners = tuple(parse(text) for text in listen)
        if not allow_plain_text:
            refuse_open(listeners)
    except BadListener as error:
        told = str(error).replace("allow_plain_text", "--allow-plain-text")
        raise click.BadParameter(told, param_hint="--listen") from error
    if not advertise:
        return listeners
    if len(advertise) not in (1, len(listeners)):
        raise click.BadParameter(f"{len(advertise)} for {len(listeners)} listeners", param_hint="--advertise")
    names = advertise * len(listeners) if len(advertise) == 1 else advertise
    return tuple(_advertised(listener, name) for listener, name in zip(listeners, names, strict=True))


def _advertised(listener: Listener, name: str) -> Listener:
    match = ADVERTISED.fullmatch(name)
    if match is None or int(match["port"] or 1) not in range(1, 65_536):
        raise click.BadParameter(f"{name!r} is not HOST[:PORT]", param_hint="--advertise")
    host = (match["bracketed"] or match["host"]).strip("[]")
    if match["port"] is None:
        return replace(listener, advertised_host=host)
    return replace(listener, advertised_host=host, advertised_port=int(match["port"]))


def _tls(options: dict[str, Any]) -> TlsFiles | None:
    from embedded_broker.config.listeners import ClientAuth, TlsFiles

    certificate, key, authorities = options["tls_certificate"], options["tls_key"], options["tls_client_ca"]
    if (certificate is None) != (key is None):
        raise click.UsageError("--tls-certificate and --tls-key belong together")
    if certificate is None:
        return None
    client_auth = ClientAuth(options["tls_client_auth"] or ("none" if authorities is None else "required"))
    if client_auth is not ClientAuth.NONE and authorities is None:
        raise click.UsageError(f"--tls-client-auth {client_auth} needs --tls-client-ca")
    return TlsFiles(certificate, key, os.environ.get("EOS_TLS_KEY_PASSWORD"), authorities, client_auth)


def _oauth(options: dict[str, Any]) -> OAuth:
    from embedded_broker.config.listeners import OAuth

    offered, jwks, unsecured = (
        "OAUTHBEARER" in options["sasl_mechanism"],
        options["oauth_jwks"],
        options["oauth_unsecured"],
    )
    claims = options["oauth_issuer"], options["oauth_audience"]
    if not offered and (jwks or unsecured or any(claims)):
        raise click.UsageError("tokens are taken with --sasl-mechanism OAUTHBEARER")
    if offered and (jwks is None) is not unsecured:
        raise click.UsageError("--sasl-mechanism OAUTHBEARER needs either --oauth-jwks or --oauth-unsecured")
    if unsecured and any(claims):
        raise click.UsageError("--oauth-issuer and --oauth-audience say nothing of tokens that anybody can write")
    if offered and importlib.util.find_spec("jwt") is None:
        raise click.ClickException("OAUTHBEARER needs PyJWT: pip install 'eos-replicate[oauth]'")
    return OAuth(jwks, *claims)


async def _run(config: BrokerConfig, as_json: bool) -> int:
    """Serve until SIGTERM or SIGINT. A second one ends the process at once: what is acknowledged is on disk."""
    from embedded_broker.broker import Broker, DataDirInUse, serve
    from embedded_broker.security.users import BadUsers
    from embedded_broker.storage.log.open_files import raise_limit
    from embedded_broker.storage.log.segment import CorruptLog

    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, lambda: os._exit(0) if stop.is_set() else stop.set())
    ready: asyncio.Future[list[Endpoint]] = loop.create_future()
    ready.add_done_callback(lambda done: _say(done.result(), as_json))
    raise_limit()
    _log_beside()
    _leave_room_for_the_loop()
    try:
        failure = await serve(Broker(config), ready, stop)
    except (DataDirInUse, BadUsers) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"the broker cannot start: {_words(error, config)}") from error
    except (CorruptLog, ValueError) as error:
        raise click.ClickException(f"the broker cannot start: {error}") from error
    if failure is not None:
        click.echo(f"the broker cannot go on: {failure!r}", err=True)
        return FAILED
    return 0


def _words(error: OSError, config: BrokerConfig) -> str:
    """Say the error without its number, with the file or the addresses that it is about."""
    why = str(error.strerror or error)
    if error.filename is not None:
        return f"{why}: {error.filename}"
    if isinstance(error, socket.gaierror):
        return f"{why}: --listen {', '.join(listener.host for listener in config.listening)}"
    return why


def _leave_room_for_the_loop() -> None:
    """Let large work give way to the event loop soon: it is done in threads, but by the same interpreter.

    The event loop asks for the interpreter after every call to the system, and waits for up to a switch interval. A
    full collection of garbage stops all threads, for longer the more objects there are; nearly all garbage here is
    without cycles, and freed without it.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)


def _say(endpoints: list[Endpoint], as_json: bool) -> None:
    addresses = [str(endpoint) for endpoint in endpoints]
    if as_json:
        click.echo(json.dumps({"event": "listening", "address": addresses[0], "addresses": addresses}))
    else:
        click.echo(f"listening on {', '.join(addresses)}")


if __name__ == "__main__":
    broker()


def _log_beside() -> None:
    """Write warnings and errors to stderr without ever waiting for it."""
    from embedded_broker.runtime.log_writer import LogHandler, LogWriter

    handler = LogHandler(LogWriter())
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
