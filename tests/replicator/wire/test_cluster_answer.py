"""Who answers for a cluster is asked of any broker: no dead or frozen one holds it up, wrong credentials end it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest

from replicator.config import Cluster, Properties
from replicator.kafka.admin import ClusterAdmin
from replicator.kafka.cluster_info import ClusterInfo
from replicator.model.errors import ReplicatorError, Unreachable
from replicator.wire.protocol import SPOKEN
from replicator.wire.topics import AnyBrokerTopics, topic_questions
from tests.replicator.wire.fake_broker import Answer, FakeBroker, Leader

SERVERS = ({"broker_id": 1, "host": "127.0.0.1", "port": 1, "rack": None},)
DESCRIBE, ALTER = 8, 7  # org.apache.kafka.common.acl.AclOperation
RIGHTS = 1 << DESCRIBE | 1 << ALTER
NOT_GIVEN = -(2**31)
pytestmark = pytest.mark.tier("full")

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "u",
    "sasl.password": "wrong",
}
CONNECT_S = 5.0


class Describing(Leader):
    """A broker that says which cluster it is of."""

    def __init__(self, rights: int = RIGHTS) -> None:
        super().__init__()
        self.rights, self.frozen = rights, False

    def __call__(self, api: str, version: int, request: object) -> Answer:
        return b"" if self.frozen else super().__call__(api, version, request)

    def answer_describe_cluster(self, request: object) -> Answer:
        return {
            "error_code": 0,
            "cluster_id": "c1",
            "controller_id": 1,
            "brokers": SERVERS,
            "cluster_authorized_operations": self.rights,
        }

    def answer_sasl_handshake(self, request: object) -> Answer:
        return {"error_code": 0, "mechanisms": ("PLAIN",)}

    def answer_sasl_authenticate(self, request: object) -> Answer:
        return {"error_code": 58, "error_message": "No such user", "auth_bytes": b""}


def connect(servers: str, connect_s: float = CONNECT_S, given: Mapping[str, str] | None = None) -> ClusterInfo:
    cluster = Cluster(name="east", properties=Properties({"bootstrap.servers": servers, **(given or {})}))
    topics = topic_questions(cluster, "me", 5.0)
    assert isinstance(topics, AnyBrokerTopics)
    admin = ClusterAdmin(cluster, topics, request_timeout_ms=5_000, connect_timeout_ms=round(connect_s * 1000))
    try:
        return admin.connect()
    finally:
        admin.close()


@pytest.mark.parametrize(("rights", "told"), [(RIGHTS, frozenset({"Describe", "Alter"})), (0, None), (NOT_GIVEN, None)])
def test_a_broker_says_who_it_is_and_what_the_user_may(rights: int, told: frozenset[str] | None) -> None:
    with FakeBroker(Describing(rights)) as broker:
        assert connect(f"127.0.0.1:{broker.port}") == ClusterInfo("c1", (1,), told)


@pytest.mark.parametrize("number", range(3))  # which one is asked first is drawn
def test_a_dead_and_a_frozen_broker_hold_nobody_up(number: int) -> None:
    frozen = Describing()
    frozen.frozen = True
    with FakeBroker(Describing()) as living, FakeBroker(frozen) as other:
        began_s = time.monotonic()
        assert connect(f"127.0.0.1:1,127.0.0.1:{other.port},127.0.0.1:{living.port}").cluster_id == "c1"
        assert time.monotonic() - began_s < 2.5


def fails(call: Callable[[], object]) -> tuple[ReplicatorError, float]:
    began_s = time.monotonic()
    with pytest.raises(Unreachable) as caught:
        call()
    return caught.value, time.monotonic() - began_s


def test_wrong_credentials_end_the_wait_at_once() -> None:
    with FakeBroker(Describing()) as broker:
        error, took_s = fails(lambda: connect(f"127.0.0.1:{broker.port}", given=LOGIN))
    assert str(error) == "cluster 'east' refused the credentials: No such user"
    assert took_s < CONNECT_S - 2


@pytest.mark.parametrize(
    ("servers", "why"), [("127.0.0.1:1", "Connection refused"), ("nowhere.invalid:9092", "Failed to resolve")]
)
def test_nobody_is_waited_for_as_long_as_a_cluster_may_take(servers: str, why: str) -> None:
    error, took_s = fails(lambda: connect(servers, 0.7))
    assert str(error).startswith(f"cluster 'east' ({servers}) did not answer within 0.7 s: ")
    assert why in str(error)
    assert 0.6 < took_s < CONNECT_S


def test_what_refuses_a_connection_for_good_is_told_rather_than_a_broker_that_is_down() -> None:
    with FakeBroker(Describing()) as broker:
        servers = f"127.0.0.1:1,localhost:{broker.port}"
        error, _ = fails(lambda: connect(servers, 0.7, {"security.protocol": "SSL"}))
    assert "no TLS connection" in str(error)
    assert "Connection refused" not in str(error)


def test_a_cluster_that_comes_up_meanwhile_is_found() -> None:
    slow = Describing()
    slow.instead["api_versions"] = [None, None]  # closes the connection
    with FakeBroker(slow) as broker:
        assert connect(f"127.0.0.1:{broker.port}").cluster_id == "c1"


def test_brokers_that_do_not_know_the_question_are_asked_over_librdkafka() -> None:
    older = Describing()
    del older.versions[SPOKEN["describe_cluster"][0]]
    with FakeBroker(older) as broker:
        error, took_s = fails(lambda: connect(f"127.0.0.1:{broker.port}", 0.7))
    assert took_s >= 0.6, "it doesn't answer librdkafka"
    assert "isn't spoken" not in str(error)
