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
     "they spare many workers of one job the login; log in with SCRAM, or OAUTHBEARER"),
    ("UpdateFeatures", (57,),
     "the broker's features stand at what it can do (`kafka-features describe` shows them), and none can be lowered"),
    ("UnregisterBroker", (64,), "there is one broker, which would unregister itself"),
    ("Client telemetry: GetTelemetrySubscriptions, PushTelemetry (KIP-714)", (71, 72),
     "nobody has a place to send metrics to; clients that don't find it send none"),
    ("Share groups (KIP-932)", (76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92),
     "queues with their own state of delivery, which nothing here needs"),
    ("AddRaftVoter, RemoveRaftVoter", (80, 81), "the quorum is this broker"),
    ("Streams groups (KIP-1071)", (88, 89), "Kafka Streams runs on the classic protocol"),
)  # fmt: skip
"""What Kafka's brokers offer to clients and this one doesn't: APIs, their keys, the reason."""


def document() -> str:
    """The whole text."""
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
