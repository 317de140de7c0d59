"""How many connections a running broker takes, of one address too, and how fast: set by an operator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from integration_tests.harness import raw
from integration_tests.harness.configs import (
    ALL,
    APPEND,
    BROKER,
    DELETE,
    NONE,
    OF_ALL,
    OF_BROKER,
    REFUSED,
    SET,
    THIS,
    alter,
    described,
    entity,
    is_set,
    seen,
)
from integration_tests.harness.processes import wait_until

PER_IP, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"
CREATION_RATE = "max.connection.creation.rate"
NUMBERS_OF_CONNECTIONS = ("max.connections", PER_IP, CREATION_RATE)

pytestmark = pytest.mark.tier("full")


@pytest.fixture(scope="module")
def bootstrap(brokers: Any) -> str:
    return str(brokers.target.bootstrap)


@pytest.fixture
def usual_connections(bootstrap: str) -> Iterator[None]:
    yield
    for broker in (ALL, THIS):
        changes = [(name, DELETE, None) for name in (*NUMBERS_OF_CONNECTIONS, OVERRIDES)]
        assert alter(bootstrap, BROKER, broker, *changes, dry=True) is NONE
        assert alter(bootstrap, BROKER, broker, *changes) is NONE
        if broker == ALL:  # Kafka judges the next change by what its broker holds, which learns of this one later
            wait_until(lambda: not set_for_all(bootstrap), "none is set for all", str)


def set_for_all(bootstrap: str) -> bool:
    """Whether the broker holds a value of the cluster's default resource."""
    found = [described(bootstrap, BROKER, THIS, name)[name] for name in (*NUMBERS_OF_CONNECTIONS, OVERRIDES)]
    return any(synonym.source == OF_ALL for each in found for synonym in each.synonyms)


@pytest.mark.usefixtures("usual_connections")
@pytest.mark.parametrize("name", NUMBERS_OF_CONNECTIONS)
def test_numbers_of_connections_are_set_for_one_broker_or_all(bootstrap: str, name: str) -> None:
    for broker in (THIS, ALL):
        for value in ("x", "0", "-1", "5.5", "2147483648"):
            assert alter(bootstrap, BROKER, broker, (name, SET, value)) is REFUSED, (broker, value)
    assert alter(bootstrap, BROKER, ALL, (name, SET, "900")) is NONE
    wait_until(lambda: seen(bootstrap, BROKER, THIS, name) == ("900", OF_ALL), "for all", str)
    assert alter(bootstrap, BROKER, THIS, (name, SET, "800")) is NONE
    wait_until(partial(is_set, bootstrap, name, "800"), "for this one", str)
    assert alter(bootstrap, BROKER, ALL, (name, SET, "-5")) is REFUSED, "that is no number of connections"
    assert alter(bootstrap, BROKER, ALL, (name, SET, "0")) is NONE, "this one has its own"
    wait_until(lambda: seen(bootstrap, BROKER, ALL, name) == ("0", OF_ALL), "for all", str)
    found = described(bootstrap, BROKER, THIS, name)[name]
    assert [(each.value, each.source) for each in found.synonyms][:2] == [("800", OF_BROKER), ("0", OF_ALL)]
    assert not found.read_only
    assert alter(bootstrap, BROKER, THIS, (name, DELETE, None)) is REFUSED, "that of all would hold"


@pytest.mark.usefixtures("usual_connections")
def test_addresses_with_numbers_of_their_own_are_set_for_one_broker_or_all(bootstrap: str) -> None:
    for broker, source in ((THIS, OF_BROKER), (ALL, OF_ALL)):
        for value in ("x", "a:b", "a:", "10.0.0.1:x", "[::1]:5", "10.0.0.1:99999999999"):
            assert alter(bootstrap, BROKER, broker, (OVERRIDES, SET, value)) is REFUSED, (broker, value)
        for value in (
            "10.0.0.1:-1",
            "nonsense.invalid:5",
            "10.0.0.1:7,10.0.0.2:9",
            "::1:5",
            "10.0.0.1 : 7 ,10.0.0.2:1",
            "",
        ):
            assert alter(bootstrap, BROKER, broker, (OVERRIDES, SET, value)) is NONE, (broker, value)
            wait_until(lambda told=(value, source): seen(bootstrap, BROKER, THIS, OVERRIDES) == told, value, str)  # type: ignore[misc]
        assert alter(bootstrap, BROKER, broker, (OVERRIDES, DELETE, None)) is NONE
    assert alter(bootstrap, BROKER, ALL, (OVERRIDES, APPEND, "10.0.0.1:7")) is ErrorCode.invalid_config
    found = described(bootstrap, BROKER, THIS, OVERRIDES)[OVERRIDES]
    assert (found.value, found.config_type, found.read_only) == ("", 2, False)


@pytest.mark.tier("default")
@pytest.mark.usefixtures("usual_connections")
def test_no_address_may_connect_only_where_others_are_named(bootstrap: str) -> None:
    none, others = (PER_IP, SET, "0"), (OVERRIDES, SET, "10.0.0.1:7")
    assert alter(bootstrap, BROKER, THIS, none, (OVERRIDES, SET, ""), dry=True) is REFUSED
    assert alter(bootstrap, BROKER, THIS, none, others, dry=True) is NONE
    assert alter(bootstrap, BROKER, ALL, others) is NONE
    wait_until(lambda: seen(bootstrap, BROKER, THIS, OVERRIDES) == ("10.0.0.1:7", OF_ALL), "for all", str)
    assert alter(bootstrap, BROKER, THIS, none, dry=True) is NONE
    assert alter(bootstrap, BROKER, THIS, none, (OVERRIDES, SET, ""), dry=True) is REFUSED


def connect_at_once(bootstrap: str, number: int) -> list[bool]:
    """Whether connections, open at the same time, are answered or closed."""
    with ExitStack() as stack, ThreadPoolExecutor(number) as threads:

        def ask(call: Callable[..., Any]) -> bool:
            try:
                return bool(call("api_versions", 0).error_code is NONE)
            except OSError:
                return False

        calls = [stack.enter_context(raw.conversation(bootstrap)) for _ in range(number)]
        return list(threads.map(ask, calls))


@pytest.fixture
def kept_open(bootstrap: str) -> Iterator[Callable[..., Any]]:
    """A connection that was there before."""
    with raw.conversation(bootstrap) as call:
        call("api_versions", 0)
        yield call


def set_for_this(call: Callable[..., Any], *changes: tuple[str, int, str | None]) -> None:
    """As `alter`, on a connection that was there before."""
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    resource = {"resource_type": BROKER, "resource_name": THIS, "configs": configs}
    answer = call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    assert answer.responses[0].error_code is NONE


@pytest.mark.usefixtures("usual_connections")
def test_an_address_has_as_many_connections_as_were_set(bootstrap: str, kept_open: Callable[..., Any]) -> None:
    set_for_this(kept_open, (PER_IP, SET, "12"))
    try:
        # Connections of the attempt before count until the broker has noticed that they are closed.
        wait_until(lambda: connect_at_once(bootstrap, 14).count(True) in range(6, 12), "some are closed", str)
    finally:
        set_for_this(kept_open, (PER_IP, DELETE, None))
    wait_until(lambda: False not in connect_at_once(bootstrap, 14), "all are answered", str)


@pytest.mark.usefixtures("usual_connections")
def test_connections_beyond_the_rate_wait_for_their_turn(bootstrap: str, kept_open: Callable[..., Any]) -> None:
    set_for_this(kept_open, (CREATION_RATE, SET, "4"))
    try:
        time.sleep(1)  # Kafka applies it some time after its answer; asking would make connections
        began_s = time.monotonic()
        assert False not in connect_at_once(bootstrap, 50)
        assert time.monotonic() - began_s > 2
    finally:
        set_for_this(kept_open, (CREATION_RATE, DELETE, None))


def test_connections_beyond_their_addresss_rate_are_closed(bootstrap: str, kept_open: Callable[..., Any]) -> None:
    ops = [{"key": "connection_creation_rate", "value": 2.0, "remove": False}]
    entry: dict[str, Any] = {"entity": entity(ip=None), "ops": ops}
    assert kept_open("alter_client_quotas", 1, entries=[entry], validate_only=False).entries[0].error_code is NONE
    try:
        wait_until(lambda: False in connect_at_once(bootstrap, 10), "some are closed", str)
    finally:
        ops[0]["remove"] = True
        assert kept_open("alter_client_quotas", 1, entries=[entry], validate_only=False).entries[0].error_code is NONE
    wait_until(lambda: False not in connect_at_once(bootstrap, 10), "all are answered", str)
