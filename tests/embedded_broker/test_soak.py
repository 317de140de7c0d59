"""Honest clients beside hostile ones, for an hour: the honest ones barely notice, nothing grows, nothing ends.

EOS_SOAK_S: for how long, in seconds; EOS_SOAK_QUIET_S: how long the honest clients are measured alone before. What came
out is written to EOS_SOAK_RESULT, by default tests/soak_result.json; commit that of a whole hour.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.embedded_broker.hostile import ATTACKS, prepare
from tests.embedded_broker.process import BrokerProcess
from tests.embedded_broker.security.certificates import Authority
from tests.embedded_broker.unfinished import HANDSHAKES, unfinished_handshakes

SOAK_S = float(os.environ.get("EOS_SOAK_S", "3600"))
QUIET_S, INTERVAL_S = float(os.environ.get("EOS_SOAK_QUIET_S", "600")), 0.02
WARM_S = 5.0
RESULT = Path(os.environ.get("EOS_SOAK_RESULT", "tests/soak_result.json"))
HONEST, TIMEOUT_S = "honest", 60.0
TIMES_MAX, RSS_MIB_MAX = 6.0, 200.0
"""Requests with more than 500 items are decoded in a thread, which shares the interpreter lock with the event loop and
with the threads that fsync: each of some ten steps of a record's way waits for the lock while one is decoded."""
CONNECT_MS_MAX, CONNECT_INTERVAL_S = 1_000.0, 0.5
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
pytestmark = [pytest.mark.tier("long"), pytest.mark.timeout(SOAK_S + QUIET_S + 600)]


class Taken(NamedTuple):
    """What one record took."""

    began_s: float
    latency_ms: float


class Honest:
    """One record after the other, each acknowledged and read back, and a commit now and then."""

    def __init__(self, address: str) -> None:
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": HONEST,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe([HONEST])
        self.written = self.read = 0

    def work(self, seconds: float) -> list[Taken]:
        """For so long; how long each record took from the send to its reader."""
        taken, end = list[Taken](), time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            value = b"%d" % self.written
            self._producer.produce(HONEST, value)
            assert self._producer.flush(TIMEOUT_S) == 0, "not acknowledged"
            self.written += 1
            message = self._consumer.poll(TIMEOUT_S)
            assert message is not None, "not read"
            assert message.error() is None, message.error()
            assert message.value() == value, "lost, doubled or out of order"
            self.read += 1
            taken.append(Taken(began, (time.monotonic() - began) * 1000))
            if self.read % 50 == 0:
                self._consumer.commit(message=message, asynchronous=False)
            time.sleep(max(0.0, INTERVAL_S - (time.monotonic() - began)))
        return taken

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


class Connecting(threading.Thread):
    """A client of the listener with TLS that connects, is answered and leaves, again and again."""

    def __init__(self, address: str, authority: Path) -> None:
        super().__init__(daemon=True)
        host, _, port = address.rpartition(":")
        self._address, self._context = (host, int(port)), ssl.create_default_context(cafile=authority)
        self._ends = threading.Event()
        self.taken_ms: list[float] = []
        self.failed: list[str] = []

    def run(self) -> None:
        """Until `end`."""
        while not self._ends.wait(CONNECT_INTERVAL_S):
            began_s = time.monotonic()
            try:
                with (
                    socket.create_connection(self._address, TIMEOUT_S) as plain,
                    self._context.wrap_socket(plain, server_hostname=self._address[0]) as connection,
                ):
                    connection.sendall(API_VERSIONS)
                    assert connection.recv(4), "closed"
            except (OSError, AssertionError) as error:
                self.failed.append(repr(error))
            else:
                self.taken_ms.append((time.monotonic() - began_s) * 1000)

    def end(self) -> None:
        """No more; return when the last has left."""
        self._ends.set()
        self.join(2 * TIMEOUT_S)


def rss_mib(pid: int) -> float:
    """The highest that it was."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def p99_ms(taken: list[Taken]) -> float:
    """The 99th percentile; of a single record its own latency."""
    return quantiles([each.latency_ms for each in taken] * 2, n=100)[98]


def by_attack(taken: list[Taken], lines: list[str]) -> dict[str, list[Taken]]:
    """The records that were on their way during each kind of attack; `lines`: what the hostile process has printed."""
    made = sorted((float(began), float(ended), name) for name, began, ended, *_ in map(str.split, lines))
    found = defaultdict[str, list[Taken]](list)
    for each in taken:
        at = bisect(made, (each.began_s + each.latency_ms / 1000,)) - 1
        if at >= 0 and made[at][1] >= each.began_s:
            found[made[at][2]].append(each)
    return found


def most_done(lines: list[str]) -> dict[str, int]:
    """By attack: how much it has done when it did most; later the broker is full of what others have left."""
    did = defaultdict[str, int](int)
    for name, _, _, count in map(str.split, lines):
        did[name] = max(did[name], int(count))
    return dict(did)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def tls_address() -> str:
    """A free one of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def broker(tmp_path: Path, authority: Authority, tls_address: str) -> Iterator[BrokerProcess]:
    """Listens in plain text, and with TLS."""
    pair = authority.sign("broker")
    files = ("--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key))
    broker = BrokerProcess(tmp_path / "data", "--listen", f"SSL://{tls_address}", *files)
    with (tmp_path / "broker.log").open("wb") as log:
        broker.start(log)
    yield broker
    broker.kill()


def test_honest_clients_barely_notice_hostile_ones(
    tmp_path: Path, authority: Authority, tls_address: str, broker: BrokerProcess
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    for future in admin.create_topics([NewTopic(HONEST, 1, 1)]).values():
        future.result(TIMEOUT_S)
    asyncio.run(prepare(int(broker.address.rpartition(":")[2])))
    honest = Honest(broker.address)
    honest.work(WARM_S)
    quiet_ms = p99_ms(honest.work(QUIET_S))
    connecting = Connecting(tls_address, authority.certificate)
    attacks_path = tmp_path / "attacks"
    with attacks_path.open("w") as made:
        # It stands for clients on other machines: of this one's processors it gets what others leave.
        command = ["nice", "-n", "19", sys.executable, "-m", "tests.embedded_broker.hostile"]
        hostile = subprocess.Popen([*command, broker.address, tls_address, "1"], stdout=made)
        connecting.start()
        try:
            beside = honest.work(SOAK_S)
            connecting.end()
            assert hostile.poll() is None, "the hostile client has ended"
        finally:
            hostile.kill()
            hostile.wait()
    honest.close()
    lines = attacks_path.read_text().splitlines()
    handshakes = [int(line.split()[3]) for line in lines if line.startswith(unfinished_handshakes.__name__)]
    lines = [line for line in lines if not line.startswith(unfinished_handshakes.__name__)]
    attacks, did = by_attack(beside, lines), most_done(lines)
    beside_ms, peak_mib = p99_ms(beside), rss_mib(broker.process.pid)
    print(f"p99 {quiet_ms:.1f} ms alone, {beside_ms:.1f} ms beside {len(lines)} attacks; {peak_mib:.0f} MiB")
    result = {
        "quiet_s": QUIET_S,
        "seconds": SOAK_S,
        "records": len(beside),
        "quiet_p99_ms": round(quiet_ms, 1),
        "p99_ms": round(beside_ms, 1),
        "rss_mib_max": round(peak_mib, 1),
        "attacks": len(lines),
        "unfinished_handshakes": handshakes,
        "tls_connections": len(connecting.taken_ms),
        "tls_connection_ms_p99": round(quantiles(connecting.taken_ms, n=100)[98], 1),
        "done_by_attack": did,
        "records_by_attack": {name: len(some) for name, some in attacks.items()},
        "records_beyond_bound_by_attack": {
            name: sum(each.latency_ms > TIMES_MAX * quiet_ms for each in some) for name, some in attacks.items()
        },
        "latency_ms_p99": {name: round(p99_ms(some), 1) for name, some in attacks.items()},
        "latency_ms_max": {name: round(max(each.latency_ms for each in some), 1) for name, some in attacks.items()},
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    for name, taken in sorted(attacks.items()):
        longest_ms = max(each.latency_ms for each in taken)
        print(f"  {name}: {len(taken)} records, p99 {p99_ms(taken):.1f} ms, at most {longest_ms:.1f} ms")
    assert len(attacks) == len(ATTACKS), attacks.keys()
    idle = {each.__name__: did[each.__name__] for each, least in ATTACKS.items() if did[each.__name__] < least}
    assert idle == {}, "the broker hasn't done what they are about"
    assert max(handshakes) == HANDSHAKES, handshakes
    assert broker.process.poll() is None, (tmp_path / "broker.log").read_text()[-2_000:]
    assert broker.terminate() == 0
    assert connecting.failed == []
    assert quantiles(connecting.taken_ms, n=100)[98] <= CONNECT_MS_MAX
    assert peak_mib <= RSS_MIB_MAX
    assert beside_ms <= TIMES_MAX * quiet_ms
