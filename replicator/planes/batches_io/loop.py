"""The lane's own loop over its connections: one selector, turned by the lane's thread while it is in the plane.

Nothing happens between two calls of the plane: the kernel keeps what comes meanwhile. Used by `plane`.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from replicator.model.errors import ReplicatorError
from replicator.planes.batches_io.link import BrokerLink
from replicator.wire.connection import Connection, HandedOver

Connect = Callable[[], Connection]
_Made = tuple[BrokerLink, HandedOver | BaseException]


class LinkLoop:
    """The connections of one producer session. `close` it; what is being connected then is closed when it comes."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._links: dict[BrokerLink, int] = {}  # with the events that are waited for
        self._made: SimpleQueue[_Made] = SimpleQueue()
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._lock = threading.Lock()
        self._closed = False

    def open(self, link: BrokerLink, connect: Connect) -> None:
        """Have `connect` made in a thread of its own, and its socket given to `link`."""
        self._links[link] = 0

        def run() -> None:
            made: HandedOver | BaseException
            try:
                made = connect().handed_over()
            except BaseException as error:  # noqa: BLE001 - raised, or told, by the lane's thread
                made = error
            with self._lock:
                if not self._closed:
                    self._made.put((link, made))
                    self._wake.send(b"\0")
                elif isinstance(made, HandedOver):
                    made.socket.close()

        threading.Thread(target=run, name=f"connect {link.address[0]}:{link.address[1]}", daemon=True).start()

    def turn(self, timeout_s: float) -> None:
        """Wait until something happens, for so long at most, and do what it asks for. Raises what a callback raises."""
        self._tidy()
        now_s = time.monotonic()
        until_s = min((link.until_s for link in self._links), default=float("inf"))
        for key, events in self._selector.select(max(0.0, min(timeout_s, until_s - now_s))):
            link: BrokerLink | None = key.data
            if link is None:
                self._take_made()
                continue
            if events & selectors.EVENT_WRITE:
                link.send()
            if events & selectors.EVENT_READ:
                link.receive()
        now_s = time.monotonic()
        for link in [link for link in self._links if link.until_s <= now_s]:
            link.late()
        self._tidy()

    def _take_made(self) -> None:
        with suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        with suppress(Empty):
            while True:
                link, made = self._made.get_nowait()
                if isinstance(made, HandedOver):
                    if link.error is None:
                        link.connected(made)
                    else:
                        made.socket.close()
                elif isinstance(made, ReplicatorError):
                    link.lose(made)
                else:
                    raise made

    def _tidy(self) -> None:
        """Have the selector wait for what each link waits for, and forget those that have ended."""
        for link in [link for link in self._links if link.error is not None]:  # first: their numbers may be used again
            if self._links.pop(link) and link.socket is not None:
                self._forget(link.socket)
        for link, events in list(self._links.items()):
            there, wanted = link.socket, 0
            if there is not None:
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.sends else 0)
            if wanted == events:
                continue
            assert there is not None
            if events:
                self._selector.modify(there, wanted, link)
            else:
                self._selector.register(there, wanted, link)
            self._links[link] = wanted

    def _forget(self, there: socket.socket) -> None:
        """Forget a socket, which may be closed: the selector finds it by itself then."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(there)

    def close(self) -> None:
        """Close all connections; nobody is told."""
        with self._lock:
            self._closed = True
        with suppress(Empty):
            while True:
                _, made = self._made.get_nowait()
                if isinstance(made, HandedOver):
                    made.socket.close()
        for link in self._links:
            if link.socket is not None:
                link.socket.close()
        self._links.clear()
        self._selector.close()
        self._wake.close()
        self._woken.close()
