"""A flow of two topics whose user has rights on one of the clusters that can be taken away one by one."""

from __future__ import annotations

from typing import Literal

from integration_tests.harness.copying import Copying
from integration_tests.harness.secured import Secured
from integration_tests.harness.two_topics import TwoTopics

Side = Literal["source", "target"]
USER = "alice"
CLUSTER = {"source": "here", "target": "there"}
"""Names of the clusters in the flow file."""
ON_SOURCE_TOPIC = ("DESCRIBE", "DESCRIBE_CONFIGS", "READ")
ON_TARGET_TOPIC = ("CREATE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE")
LOGIN = ("bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.username", "sasl.password")


class Guarded:
    """Gives the flow's user all rights on the secured side; each right on the first topic is one of its own."""

    def __init__(self, secured: Secured, two: TwoTopics, side: Side) -> None:
        self.two, self.side, self._secured = two, side, secured
        self.cluster = CLUSTER[side]
        self.topic = two.first if side == "source" else two.copy_of(two.first)
        """The first topic, as it is called on the secured side."""
        secured.allow(USER, "GROUP", two.flow.group, "DESCRIBE", "READ")
        if side == "source":
            for topic in (two.first, two.second):
                secured.allow(USER, "TOPIC", topic, *ON_SOURCE_TOPIC)
        else:
            for topic in (two.first, two.second):
                secured.allow(USER, "TOPIC", two.copy_of(topic), *ON_TARGET_TOPIC)
            secured.allow(USER, "TOPIC", f"__eos.{two.name}", *ON_TARGET_TOPIC, prefix=True)
            secured.allow(USER, "TRANSACTIONAL_ID", f"eos.{two.name}", "DESCRIBE", "WRITE", prefix=True)
            secured.allow(USER, "BROKER", "kafka-cluster", "DESCRIBE", "DESCRIBE_CONFIGS", "IDEMPOTENT_WRITE")

    def take_away(self, *rights: str) -> None:
        """Take rights on the first topic away."""
        self._secured.take_away(USER, "TOPIC", self.topic, *rights)

    def take_group_away(self) -> None:
        """Take all rights on the group of the flow's name away."""
        self._secured.take_away(USER, "GROUP", self.two.flow.group, "DESCRIBE", "READ")

    def give_back(self, *rights: str) -> None:
        """Give rights on the first topic back."""
        self._secured.allow(USER, "TOPIC", self.topic, *rights)


def login(secured: Secured) -> dict[str, str]:
    """Client properties with which a flow logs in."""
    properties = secured.config(USER)
    return {name: properties[name] for name in LOGIN}


def guard(secured: Secured, copying: Copying, side: Side) -> Guarded:
    """A second topic for the flow, and the rights that it needs."""
    return Guarded(secured, TwoTopics(copying), side)
