"""Where the embedded broker answers otherwise than Kafka on purpose, API by API, and why. Pure: docs/compat.md has it.

A difference in answers that has no `Deviation` fails a test, and so does a `Deviation` without a difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

USERS = {
    "anybody": "without an authorizer",
    "alice": "with an authorizer, by a user without rights",
    "admin": "with an authorizer, by a super user",
}
"""Who asks, by the names in `answer_classes.json`."""
Classes = Mapping[str, Mapping[str, str]]
"""API → versions → error codes in the answer."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """What is answered instead, to whom of `USERS`, and why."""

    users: frozenset[str]
    what: str
    why: str


DEVIATIONS: Mapping[str, Deviation] = {
    "sasl_handshake": Deviation(
        frozenset({"alice", "admin"}),
        "a mechanism that there isn't, asked for when a login is renewed, is answered with those that there are, and "
        "then the connection is closed; Kafka closes it at once",
        "a client can say what is wrong",
    ),
    "alter_user_scram_credentials": Deviation(
        frozenset({"anybody", "admin"}),
        "a user who is to be altered twice is refused before anybody is looked for",
        "nothing is looked up for a request that is refused anyway",
    ),
}
BY_DESIGN: Mapping[str, str] = {
    "produce": "acks=1 and acks=all are answered once the batch is on disk; Kafka leaves that to the operating system",
    "metadata": "there is one broker: no leader moves, and it is each partition's only replica",
    "alter_replica_log_dirs": "there is one log directory, so no replica moves",
    "elect_leaders": "there is one broker, so there is nobody to elect",
    "alter_partition_reassignments": "there is one broker, so nothing can be reassigned",
    "alter_client_quotas": "all quotas are kept and shown, but only connection_creation_rate slows anybody down",
}
"""What answers of a generated request don't show."""


def differences(kafka: Mapping[str, Classes], embedded: Mapping[str, Classes]) -> dict[str, frozenset[str]]:
    """The APIs whose answers differ in any version, and for whom."""
    found: dict[str, set[str]] = {}
    for user in USERS:
        for api in kafka[user].keys() | embedded[user].keys():
            if kafka[user].get(api) != embedded[user].get(api):
                found.setdefault(api, set()).add(user)
    return {api: frozenset(users) for api, users in found.items()}
