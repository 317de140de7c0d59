"""The log is never in the way: a pipe that nobody reads, a full disk, a closed stream."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import pytest

from embedded_broker.runtime.log_writer import LINE_CHARS_MAX, LINES_MAX, LogWriter
from tests.embedded_broker.process import BrokerProcess

METADATA_V1 = b"\0\0\0\x16" + b"\0\x03\0\1" + b"\0\0\0\1" + b"\0\x08somebody" + b"\xff\xff\xff\xff"
CONNECTIONS = 600
TIMEOUT_S = 20
pytestmark = pytest.mark.tier("extended")


def _visit(address: str) -> None:
    """Connect, ask, and leave: each makes two lines."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        connection.sendall(METADATA_V1)
        assert connection.recv(4)


def _serves_many(directory: Path, stderr: IO[bytes] | int) -> None:
    process = BrokerProcess(directory)
    process.start(stderr)
    try:
        for _ in range(CONNECTIONS):
            _visit(process.address)
        assert process.terminate() == 0
    finally:
        if process.process.poll() is None:
            process.kill()


def test_a_pipe_that_nobody_reads_does_not_stop_the_broker(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        _serves_many(tmp_path, writing)
    finally:
        os.close(writing)
        os.close(reading)


def test_a_full_disk_under_the_log_does_not_stop_the_broker(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        _serves_many(tmp_path, full)


def test_lines_are_bounded_and_the_missing_ones_are_counted() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        writer = LogWriter(stream)
        for number in range(5 * LINES_MAX):
            writer.write(f"{number:05} " + "x" * 2 * LINE_CHARS_MAX)
        assert writer.dropped >= 3 * LINES_MAX
        dropped = writer.dropped
        said: list[bytes] = []

        def read() -> None:
            while data := os.read(reading, 1 << 20):
                said.append(data)

        reader = threading.Thread(target=read)
        reader.start()
        closer = threading.Thread(target=writer.close)
        closer.start()
        closer.join(TIMEOUT_S)
    assert writer._thread is not None
    writer._thread.join(TIMEOUT_S)
    reader.join(TIMEOUT_S)
    os.close(reading)
    lines = b"".join(said).decode().splitlines()
    told = [int(line.split()[0]) for line in lines if line.endswith("lines of this log could not be written")]
    assert sum(told) == dropped
    assert all(len(line) <= LINE_CHARS_MAX for line in lines)
    assert [line[:5] for line in lines if line[5:6] == " " and line[:5].isdecimal()][:2] == ["00000", "00001"]


def test_a_stream_that_has_been_closed_or_has_no_descriptor() -> None:
    memory = io.StringIO()
    writer = LogWriter(memory)
    writer.write("line")
    writer.close()
    assert memory.getvalue() == "line\n"
    writer.write("after the end")
    assert writer.dropped == 1
    closed = io.StringIO()
    closed.close()
    writer = LogWriter(closed)
    writer.write("line")
    writer.close()
    assert writer.dropped == 1


def test_its_thread_keeps_no_process_from_its_end() -> None:
    script = (
        "import os, sys; from embedded_broker.runtime.log_writer import LogWriter; w = LogWriter(sys.stderr)\n"
        "for _ in range(1000): w.write('x' * 2000)\n"
        "w.close()"
    )
    reading, writing = os.pipe()
    try:
        subprocess.run([sys.executable, "-c", script], stderr=writing, check=True, timeout=TIMEOUT_S)
    finally:
        os.close(writing)
        os.close(reading)
