"""An endpoint ends at once and without a word, whatever its clients do meanwhile."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest
import structlog
from waitress import trigger

from replicator.observe.serving import bound, serving


def answering(_: dict[str, Any], start: Any) -> Iterable[bytes]:
    start("200 OK", [("Content-Length", "2")])
    return [b"ok"]


@pytest.mark.filterwarnings("error")
def test_it_is_ended_with_connections_open_and_between_them() -> None:
    before = threading.active_count()
    for number in range(100):
        with serving(bound("127.0.0.1", 0), answering, structlog.get_logger()) as port:
            clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(number % 3)]
            for client in clients:
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            for client in clients[1:]:
                assert client.recv(4096).startswith(b"HTTP/1.1 200")
        for client in clients:
            client.settimeout(5)
            with contextlib.suppress(ConnectionResetError):  # of one whose request was not read
                while client.recv(4096):
                    pass
            client.close()
    assert threading.active_count() == before


def test_it_is_ended_while_a_thread_that_has_just_answered_wakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pull = vars(trigger.trigger)["_physical_pull"]

    def pulled_before_and_after(of: trigger.trigger) -> None:
        pull(of)
        time.sleep(0.05)  # long enough for whoever that wakes
        pull(of)

    with serving(bound("127.0.0.1", 0), answering, structlog.get_logger()):
        monkeypatch.setattr(trigger.trigger, "_physical_pull", pulled_before_and_after)
