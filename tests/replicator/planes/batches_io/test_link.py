"""A connection to a broker: each request has one end, whatever is cut, late or wrong."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.model.errors import ReplicatorError, Unreachable
from replicator.planes.batches_io.link import AnswerTooLarge, BrokerLink, Pieces, framed
from replicator.planes.batches_io.loop import LinkLoop
from replicator.wire.access import access
from replicator.wire.connection import Connection, ConnectionLost, HandedOver
from replicator.wire.metadata_request import metadata_request
from replicator.wire.response_limits import BadResponse
from tests.replicator.wire.fake_broker import TOPIC, FakeBroker, Leader, flow_of, response

pytestmark = pytest.mark.tier("default")

ANSWER_BYTES_MAX = 300_000
LATER_S = 60.0


class Pair:
    """A link whose broker is this test. `ends` has what became of each request, by its number."""

    def __init__(self) -> None:
        ours, self.broker = socket.socketpair()
        self.link = BrokerLink(("here", 1), "broker here:1", ANSWER_BYTES_MAX)
        self.ends: dict[int, bytes | ReplicatorError] = {}
        self._ours = ours
        self._asked = 0

    def connect(self) -> None:
        self.link.connected(HandedOver(self._ours, {}, {}, 0, float("inf")))

    def ask(self, pieces: Pieces = (b"request",), until_s: float = float("inf")) -> None:
        self._asked += 1
        key = self._asked

        def end(found: bytes | ReplicatorError) -> None:
            assert key not in self.ends, "a second end"
            self.ends[key] = found

        self.link.ask(lambda link, number: pieces, lambda link, data: end(bytes(data)), end, until_s)

    def answer(self, data: bytes) -> None:
        self.broker.sendall(data)
        self.link.receive()

    def close(self) -> None:
        self._ours.close()
        self.broker.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with closing(Pair()) as made:
        made.connect()
        yield made


def frame(number: int, body: bytes) -> bytes:
    return (len(body) + 4).to_bytes(4, "big") + number.to_bytes(4, "big") + body


def test_a_connection_that_is_cut_at_any_byte_answers_what_is_whole_and_loses_the_rest() -> None:
    answers = frame(1, b"first") + frame(2, b"second")
    for cut in range(len(answers) + 1):
        with closing(Pair()) as pair:
            pair.connect()
            for _ in range(3):
                pair.ask()
            pair.answer(answers[:cut])
            pair.broker.close()
            pair.link.receive()
            whole = (cut >= len(frame(1, b"first"))) + (cut == len(answers))
            assert [pair.ends[number] for number in range(1, whole + 1)] == [b"first", b"second"][:whole]
            assert all(isinstance(pair.ends[number], ConnectionLost) for number in range(whole + 1, 4))
            assert pair.link.error is not None


@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 65_524, 65_528, 65_529, 200_000]), min_size=1, max_size=4), data=st.data()
)
def test_answers_come_whole_however_they_are_cut_on_the_way(sizes: Sequence[int], data: st.DataObject) -> None:
    bodies = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    stream = b"".join(frame(number + 1, body) for number, body in enumerate(bodies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    with closing(Pair()) as pair:
        pair.connect()
        for _ in bodies:
            pair.ask()
        pair.broker.settimeout(5)
        for first, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            for at in range(first, end, 50_000):  # a socket pair takes no more at a time
                pair.answer(stream[at : min(end, at + 50_000)])
        assert [pair.ends[number + 1] for number in range(len(bodies))] == bodies


def test_requests_wait_for_the_connection_and_for_the_socket() -> None:
    large = bytes(range(256)) * 8_000
    with closing(Pair()) as pair:
        pair.ask((b"first", b"", large))
        pair.ask((bytearray(b"last"),))
        assert not pair.link.ready
        pair.connect()
        assert pair.link.sends, "more than a socket takes at once"
        wanted, read = b"first" + large + b"last", bytearray()
        while len(read) < len(wanted):
            read += pair.broker.recv(1 << 20)
            pair.link.send()
        assert read == wanted
        assert not pair.link.sends


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (frame(2, b"another"), Unreachable),
        (b"\0\0\0\3\0\0\0\1", Unreachable),
        (b"\xff\xff\xff\xff\0\0\0\1", Unreachable),
        (b"\x7f\xff\xff\xff\0\0\0\1", AnswerTooLarge),
    ],
)
def test_what_is_no_answer_ends_the_connection(pair: Pair, data: bytes, kind: type[ReplicatorError]) -> None:
    pair.ask()
    pair.answer(data)
    assert isinstance(pair.ends[1], kind)
    pair.ask()
    assert isinstance(pair.ends[2], kind), "told at once"


def test_a_body_that_is_no_response_loses_its_request_too(pair: Pair) -> None:
    lost: list[ReplicatorError] = []

    def unreadable(link: BrokerLink, data: bytes | bytearray) -> None:
        raise BadResponse("no FetchResponse")

    pair.link.ask(lambda link, number: (b"request",), unreadable, lost.append, float("inf"))
    pair.ask()
    pair.answer(frame(1, b"x") + frame(2, b"y"))
    assert [type(error) for error in lost] == [Unreachable]
    assert isinstance(pair.ends[1], Unreachable)


def test_an_answer_that_is_late_ends_the_connection_unless_the_broker_has_asked_for_patience(pair: Pair) -> None:
    now_s = time.monotonic()
    pair.ask(until_s=now_s + 1)
    assert pair.link.until_s == now_s + 1
    pair.link.throttle(5.0, now_s)
    assert (pair.link.until_s, pair.link.quiet_until_s) == (now_s + 6, now_s + 5)
    pair.link.late()
    assert isinstance(pair.ends[1], ConnectionLost)


def turn_until(loop: LinkLoop, done: list[object]) -> None:
    until_s = time.monotonic() + LATER_S
    while not done:
        assert time.monotonic() < until_s
        loop.turn(1.0)


def connected(loop: LinkLoop, broker: FakeBroker) -> tuple[BrokerLink, list[object]]:
    """A link that is being connected to, and what became of a request that it was asked before."""
    flow, ends = flow_of(broker), list[object]()
    link = BrokerLink(broker.address, "broker", ANSWER_BYTES_MAX)

    def connect() -> Connection:
        until_s = time.monotonic() + LATER_S
        return Connection(
            broker.address, access(flow.source), "test", deadline_s=until_s, response_bytes_max=1000, features=True
        )

    loop.open(link, connect)
    link.ask(
        lambda link, number: framed(metadata_request(link, "test", [TOPIC]), number),
        lambda link, data: ends.append(data),
        ends.append,
        float("inf"),
    )
    return link, ends


def test_features_that_the_cluster_has_finalized_are_known_once_it_is_connected() -> None:
    leader = Leader()
    leader.instead["api_versions"] = [
        {
            **(leader.answer_api_versions(None) or {}),  # type: ignore[dict-item]
            "finalized_features": [{"name": "transaction.version", "max_version_level": 2, "min_version_level": 0}],
        }
    ]
    with FakeBroker(leader) as broker, closing(LinkLoop()) as loop:
        link, ends = connected(loop, broker)
        turn_until(loop, ends)
        assert isinstance(ends[0], bytes)
        assert link.features == {"transaction.version": 2}
        assert link.version("fetch") == 17


def test_a_broker_that_knows_no_features_is_asked_as_before() -> None:
    leader = Leader()
    leader.instead["api_versions"] = [response("api_versions", 0, 1, {"error_code": 35, "api_keys": []})]
    with FakeBroker(leader) as broker, closing(LinkLoop()) as loop:
        link, ends = connected(loop, broker)
        turn_until(loop, ends)
        assert isinstance(ends[0], bytes)
        assert link.features == {}
        assert [version for api, version, _ in broker.asked if api == "api_versions"] == [3, 0]


def test_a_broker_that_is_not_there_is_told_to_each_request() -> None:
    with FakeBroker(Leader()) as broker:
        pass
    with closing(LinkLoop()) as loop:
        link, ends = connected(loop, broker)
        turn_until(loop, ends)
        assert isinstance(ends[0], ConnectionLost)
        assert link.error is ends[0]
