"""Writes docs/protocol.md from the API modules.

`python -m embedded_broker.api.protocol_document > docs/protocol.md`, by hand, when a test says that it has changed.
"""

from __future__ import annotations

import sys

from embedded_broker.api.registry import Api, load_all

INTRODUCTION = """\
# Protocol of the embedded broker

Generated from the modules in `embedded_broker/api` by `python -m embedded_broker.api.protocol_document`; a test checks
that it is up to date. A request with another API key, or a version outside of these, closes the connection; an
ApiVersions request with a version that is too new is answered in version 0 with UNSUPPORTED_VERSION.

| key | API | versions |
|---|---|---|
"""
LEFT_OUT = """
Not spoken, and not listed in answers to ApiVersions:

| keys | API | why |
|---|---|---|
"""


OUTSIDE: tuple[tuple[str, tuple[int, ...], str], ...] = (
    ("CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken", (38, 39, 40),
     "many workers of a job would log in without the user's password (KIP-48); let them use SCRAM or OAUTHBEARER"),
    ("UpdateFeatures", (57,),
     "each feature is finalized at the highest level that there is (`kafka-features describe`), and can't be lowered"),
    ("UnregisterBroker", (64,), "the only broker that there is would unregister itself"),
    ("Client telemetry: GetTelemetrySubscriptions, PushTelemetry (KIP-714)", (71, 72),
     "the broker has no receiver for clients' metrics; Kafka without one doesn't announce these APIs either"),
    ("Share groups (KIP-932)", (76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92),
     "share groups keep a state of delivery for each record; the replicator doesn't need them"),
    ("AddRaftVoter, RemoveRaftVoter", (80, 81), "the broker is the only voter of its quorum"),
    ("Streams groups (KIP-1071)", (88, 89), "Kafka Streams can use the classic group protocol instead"),
)  # fmt: skip
"""What Kafka's brokers offer to clients and this one doesn't: APIs, their keys, the reason."""


def document() -> str:
    """Write the whole text."""
    apis = sorted(load_all().values(), key=lambda api: api.key)
    rows = [f"| {api.key} | {_title(api)} | {api.versions[0]}–{api.versions[-1]} |\n" for api in apis]  # noqa: RUF001
    left_out = "".join(f"| {', '.join(map(str, keys))} | {names} | {reason} |\n" for names, keys, reason in OUTSIDE)
    notes = "".join(f"\n## {_title(api)}\n\n{_notes(api)}\n" for api in apis)
    return INTRODUCTION + "".join(rows) + LEFT_OUT + left_out + notes


def _title(api: Api) -> str:
    return "".join(part.capitalize() for part in api.name.split("_"))


def _notes(api: Api) -> str:
    return api.notes.replace("Version notes:", "\nVersion notes:")


if __name__ == "__main__":
    sys.stdout.write(document())
