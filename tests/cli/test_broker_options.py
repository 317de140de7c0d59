"""Options of `eos-replicate broker` that say where and how it listens."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.commands.broker import _advertised, _listeners, broker
from embedded_broker.config.listeners import Listener, Protocol


def _refused(directory: Path, *options: str) -> str:
    result = CliRunner().invoke(broker, ["--data-dir", str(directory / "data"), *options])
    assert result.exit_code == 2
    assert not (directory / "data").exists(), "nothing was begun"
    return result.output


def test_plain_text_off_loopback_needs_to_be_allowed(tmp_path: Path) -> None:
    assert "whole network" in _refused(tmp_path, "--listen", "0.0.0.0:9092")
    assert _listeners(("0.0.0.0:9092",), (), True) == (Listener("0.0.0.0", 9092),)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--listen", "nowhere"], "is not [PROTOCOL://]HOST:PORT"),
        (["--listen", "SSL://127.0.0.1:0"], "needs --tls-certificate and --tls-key"),
        (["--listen", "127.0.0.1:1", "--listen", "127.0.0.1:2", "--advertise", "a", "--advertise", "b",
          "--advertise", "c"], "3 for 2 listeners"),
        (["--advertise", "a,b"], "'a,b' is not HOST[:PORT]"),
        (["--advertise", "a:65536"], "'a:65536' is not HOST[:PORT]"),
        (["--advertise", "SSL://a:1"], "'SSL://a:1' is not HOST[:PORT]"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(tmp_path: Path, options: list[str], message: str) -> None:
    assert message in _refused(tmp_path, *options)


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("")
    assert "belong together" in _refused(tmp_path, "--tls-certificate", str(tmp_path / "c.pem"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("host", ("host", None)),
        ("host:1", ("host", 1)),
        ("[::1]:1", ("::1", 1)),
        ("fe80::1", ("fe80::1", None)),
        ("[fe80::1%eth0]", ("fe80::1%eth0", None)),
        ("10.0.0.1:9", ("10.0.0.1", 9)),
        ("a_b.c-d", ("a_b.c-d", None)),
    ],
)
def test_what_clients_are_told(name: str, expected: tuple[str, int | None]) -> None:
    told = _advertised(Listener("0.0.0.0", 9092, Protocol.SSL), name)
    assert (told.advertised_host, told.advertised_port) == expected


def test_one_name_is_for_all_listeners_and_several_are_for_each() -> None:
    both = ("127.0.0.1:1", "127.0.0.1:2")
    assert [each.advertised_host for each in _listeners(both, ("a",), False)] == ["a", "a"]
    assert [each.advertised_host for each in _listeners(both, ("a", "b"), False)] == ["a", "b"]


def test_topics_are_made_on_demand_unless_that_is_turned_off() -> None:
    """As Kafka's default, and that of the pytest fixture."""
    made = {option.name: option for option in broker.params}["auto_create"]
    assert made.default is True
    assert "--no-auto-create" in made.secondary_opts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data-dir", "/proc/nowhere"], "the broker cannot start: No such file or directory: /proc/nowhere"),
        (["--listen", "no.such.host.invalid:0", "--allow-plain-text"], ": --listen no.such.host.invalid"),
    ],
)
def test_why_it_cannot_start_is_told_without_numbers(tmp_path: Path, options: list[str], message: str) -> None:
    result = CliRunner().invoke(broker, ["--data-dir", str(tmp_path / "data"), *options])
    assert result.exit_code == 1
    assert message in result.output
    assert "Errno" not in result.output
