"""`python -m benchmarks.pipe`: passes record batches of one topic from one broker to another as they are.

What a copy costs at least, in Python and with two brokers: Fetch and Produce, no transaction, no check, no position, no
second attempt. It knows one broker on each side, and stops with its parent.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Iterator

import click

PRODUCE, FETCH = (0, 8), (1, 11)  # API keys and versions before flexible fields
IN_FLIGHT_MAX, FETCH_BYTES, PARTITION_BYTES = 5, 8 << 20, 1 << 20
HEAD = 61  # of a record batch
EARLIEST_OFFSET = 0
Batches = dict[int, list[memoryview]]  # by partition


class Connection:
    """One connection; requests are answered in their order."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, api: tuple[int, int], parts: list[bytes | memoryview]) -> None:
        """Send a request, with no client id."""
        head = struct.pack(">hhih", *api, 0, -1)
        size = len(head) + sum(len(part) for part in parts)
        left: list[bytes | memoryview] = [struct.pack(">i", size) + head, *parts]
        while left:
            sent = self._socket.sendmsg(left[:1024])
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if left and sent:
                left[0] = memoryview(left[0])[sent:]

    def receive(self) -> memoryview:
        """Return the next answer, without its header. Raises ConnectionError."""
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)[4:]

    def _exactly(self, size: int) -> memoryview:
        found = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            got = self._socket.recv_into(found[filled:])
            if not got:
                raise ConnectionError("the broker has closed the connection")
            filled += got
        return found


def text(value: str) -> bytes:
    """A string of the protocol."""
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def fetch_request(topic: str, offsets: dict[int, int]) -> list[bytes | memoryview]:
    """Ask for what follows these offsets."""
    head = struct.pack(">iiiibii", -1, 500, 1, FETCH_BYTES, 0, 0, -1) + struct.pack(">i", 1) + text(topic)
    asked = b"".join(struct.pack(">iiqqi", at, -1, offset, -1, PARTITION_BYTES) for at, offset in offsets.items())
    return [head + struct.pack(">i", len(offsets)) + asked + struct.pack(">i", 0) + text("")]


def fetched(answer: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield records by partition. Raises RuntimeError for an error code."""
    at = 4 + 2 + 4
    topics = int.from_bytes(answer[at : at + 4], "big")
    at += 4
    for _ in range(topics):
        at += 2 + int.from_bytes(answer[at : at + 2], "big")
        count = int.from_bytes(answer[at : at + 4], "big")
        at += 4
        for _ in range(count):
            partition, code = struct.unpack_from(">ih", answer, at)
            if code:
                raise RuntimeError(f"Fetch: partition {partition}: error {code}")
            at += 4 + 2 + 8 + 8 + 8
            aborted = int.from_bytes(answer[at : at + 4], "big", signed=True)
            at += 4 + 16 * max(0, aborted) + 4
            size = int.from_bytes(answer[at : at + 4], "big", signed=True)
            at += 4
            yield partition, answer[at : at + max(0, size)]
            at += max(0, size)


def whole_batches(records: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Yield each whole batch, with the offset after it."""
    at = 0
    while at + HEAD <= len(records):
        base, length = struct.unpack_from(">qi", records, at)
        end = at + 12 + length
        if end > len(records):
            return
        last_delta = int.from_bytes(records[at + 23 : at + 27], "big")
        yield records[at:end], base + last_delta + 1
        at = end


def read(connection: Connection, topic: str, partitions: int, found: queue.Queue[Batches | Exception]) -> None:
    """Fetch on and on; at most two answers wait in `found`, and what ends it comes last."""
    offsets = dict.fromkeys(range(partitions), EARLIEST_OFFSET)
    try:
        while True:
            connection.send(FETCH, fetch_request(topic, offsets))
            batches: Batches = {}
            for partition, records in fetched(connection.receive()):
                for batch, following in whole_batches(records):
                    batches.setdefault(partition, []).append(batch)
                    offsets[partition] = following
            if batches:
                found.put(batches)
    except Exception as error:  # noqa: BLE001 - raised by the thread that waits for it
        found.put(error)


def produce_requests(topic: str, batches: Batches) -> Iterator[list[bytes | memoryview]]:
    """Yield requests: Kafka takes one batch a partition and request. A batch's offset isn't under its CRC."""
    for number in range(max(len(each) for each in batches.values())):
        chosen = {at: each[number] for at, each in batches.items() if number < len(each)}
        parts: list[bytes | memoryview] = [
            struct.pack(">hhi", -1, -1, 30_000) + struct.pack(">i", 1) + text(topic) + struct.pack(">i", len(chosen))
        ]
        for partition, batch in chosen.items():
            struct.pack_into(">q", batch, 0, 0)
            parts += [struct.pack(">ii", partition, len(batch)), batch]
        yield parts


def check_produced(answer: memoryview, topic: str) -> None:
    """Raise RuntimeError for an error code of the first partition."""
    at = 4 + len(text(topic)) + 4
    partition, code = struct.unpack_from(">ih", answer, at)
    if code:
        raise RuntimeError(f"Produce: partition {partition}: error {code}")


@click.command()
@click.argument("source")
@click.argument("target")
@click.argument("topic")
@click.argument("copy")
@click.option("--partitions", default=4, show_default=True)
def main(source: str, target: str, topic: str, copy: str, partitions: int) -> None:
    """Copy TOPIC of the broker SOURCE (host:port) to COPY of the broker TARGET until it is killed."""
    found: queue.Queue[Batches | Exception] = queue.Queue(2)
    threading.Thread(target=read, args=(Connection(source), topic, partitions, found), daemon=True).start()
    to, in_flight = Connection(target), 0
    while True:
        batches = found.get()
        if isinstance(batches, Exception):
            raise batches
        for parts in produce_requests(copy, batches):
            if in_flight == IN_FLIGHT_MAX:
                check_produced(to.receive(), copy)
                in_flight -= 1
            to.send(PRODUCE, parts)
            in_flight += 1


if __name__ == "__main__":
    main()
