"""What waits for the clusters of a flow ends with a stop, on real sockets."""

from __future__ import annotations

import socket
import threading

import pytest
import structlog

from replicator.config import Flow, load_text
from replicator.flow.connecting import Connecting
from replicator.flow.topics import ControlPlane
from replicator.model.errors import Unreachable


def flow(address: str) -> Flow:
    text = f"""\
clusters:
  a: {{properties: {{bootstrap.servers: "{address}"}}}}
  b: {{properties: {{bootstrap.servers: "{address}"}}}}
flows:
  f: {{source: a, target: b, topics: [t], limits: {{connect_timeout_ms: 1h}}}}
"""
    return load_text(text, env={}).flows["f"]


def test_a_stop_ends_the_wait_for_clusters_that_do_not_answer() -> None:
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))  # and doesn't listen
        of, asked = flow(f"127.0.0.1:{refusing.getsockname()[1]}"), threading.Event()
        stopping = threading.Timer(0.1, asked.set)
        stopping.start()
        with ControlPlane(of) as plane, pytest.raises(Unreachable, match="was asked to stop"):
            Connecting(of, plane, asked, structlog.get_logger()).connect()
        stopping.join()
