"""Where a broker listens, and where it refuses to."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedded_broker.config.listeners import BadListener, Endpoint, Listener, Protocol, parse, refuse_open
from embedded_broker.security.users import BadUsers, read_users


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9092", Listener("127.0.0.1", 9092)),
        ("SASL_SSL://0.0.0.0:9093", Listener("0.0.0.0", 9093, Protocol.SASL_SSL)),
        ("ssl://[::1]:0", Listener("::1", 0, Protocol.SSL)),
        (":9092", Listener("0.0.0.0", 9092)),
    ],
)
def test_addresses(text: str, expected: Listener) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["", "host", "host:", "host:99999", "http://host:1", "a:b:1", "::1:9092"])
def test_invalid_addresses_are_refused(text: str) -> None:
    with pytest.raises(BadListener):
        parse(text)


@pytest.mark.parametrize("text", ["0.0.0.0:1", "10.0.0.1:1", "some-host:1", "[::]:1", "SASL_PLAINTEXT://0.0.0.0:1"])
def test_plain_text_off_loopback_is_refused(text: str) -> None:
    with pytest.raises(BadListener, match="whole network"):
        refuse_open((Listener(), parse(text)))


@pytest.mark.parametrize("text", ["127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1", "SSL://0.0.0.0:1"])
def test_loopback_and_tls_are_not(text: str) -> None:
    refuse_open((parse(text),))


def test_what_clients_are_told() -> None:
    assert Endpoint(Listener("127.0.0.1", 0), 4321).advertised == ("127.0.0.1", 4321)
    assert Endpoint(Listener("0.0.0.0", 9092), 9092).advertised == ("localhost", 9092)
    assert Endpoint(Listener("::", 9092, advertised_host="b", advertised_port=1), 9092).advertised == ("b", 1)
    assert str(Endpoint(Listener("::1", 0), 7)) == "[::1]:7"


def test_users_are_read_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# who\n\nalice:sec:ret \nbob:b\n")
    users = read_users(file)
    assert users.password("alice") == "sec:ret "
    assert users.knows("bob", "b")
    assert not users.knows("bob", "")
    assert not users.knows("bob", "bb")
    assert not users.knows("eve", "b")
    assert "sec" not in repr(users)


@pytest.mark.parametrize("line", ["alice", ":x", "alice:", "bob:again"])
def test_bad_lines_are_named_by_number_without_what_they_say(tmp_path: Path, line: str) -> None:
    file = tmp_path / "users"
    file.write_text(f"bob:hidden\n{line}\n")
    with pytest.raises(BadUsers, match="line 2") as raised:
        read_users(file)
    assert "hidden" not in str(raised.value)
