"""Listens for requests about a process that runs: binds before anything is copied, answers in threads of its own.

waitress bounds what a stranger may do to it: connections, time without a byte, sizes of headers and bodies.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import structlog
from waitress import wasyncore
from waitress.server import create_server

from replicator.model.errors import ConfigError

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

THREADS = 2
CONNECTIONS_MAX = 50
CHANNEL_TIMEOUT_S = 30


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens there, so that nobody else can take the port any more.

    Raises:
        ConfigError: the address can't be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(CONNECTIONS_MAX)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise ConfigError(f"metrics.listen: cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listening


@contextmanager
def serving(listening: socket.socket, application: WSGIApplication, log: structlog.stdlib.BoundLogger) -> Iterator[int]:
    """Answer with `application` until the block ends; yield the port. Closes the socket, and all connections.

    The thread that looks for what came on them closes them: in the middle of its look they must not become others.
    """
    _log_to(log)
    connections: dict[int, Any] = {}
    server: Any = create_server(
        application,
        map=connections,
        sockets=[listening],
        threads=THREADS,
        connection_limit=CONNECTIONS_MAX,
        channel_timeout=CHANNEL_TIMEOUT_S,
        max_request_body_size=0,
        ident="",
    )

    pulled = threading.Event()

    def end() -> None:
        pulled.wait()  # another thread may pull the trigger before this one has: it must not be closed before
        server.task_dispatcher.shutdown()
        wasyncore.close_all(connections)

    host, port = listening.getsockname()[:2]
    thread = threading.Thread(target=server.run, name="metrics", daemon=True)
    thread.start()
    log.info("metrics_served", address=f"{host}:{port}")
    try:
        yield port
    finally:
        server.trigger.pull_trigger(end)
        pulled.set()
        thread.join()


class _Lines(logging.Handler):
    """Takes what waitress logs: errors of the application, in the process' own format."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        super().__init__(logging.ERROR)  # a queue of requests is no news
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """See logging."""
        self._log.error("request_failed", detail=self.format(record))


def _log_to(log: structlog.stdlib.BoundLogger) -> None:
    theirs = logging.getLogger("waitress")
    theirs.handlers, theirs.propagate = [_Lines(log)], False
