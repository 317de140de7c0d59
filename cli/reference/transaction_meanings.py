"""What the log events that tell of the source's transactions mean. Part of `log_meanings`."""

from __future__ import annotations

TRANSACTION_EVENTS = {
    "hold_topics_unknown": (
        "The topics that groups have to wait for aren't wholly known; `reason` says why (`groups.hold_with: auto`). "
        "Groups are moved without waiting for them. It is looked for again, and told again when the reason changes."
    ),
    "source_transactions_known_again": "The source's transactions can be looked at again.",
    "source_transactions_missed": (
        "Some of the source's `__transaction_state` was deleted before it was read: a failover can't say whether "
        "transactions that ended meanwhile are half copied. Its verdict says since when all are known (`since_ms`)."
    ),
    "source_transactions_unknown": (
        "The source's transactions can't be looked at; `reason` says why. A failover would know only the transactions "
        "that the last look has seen. Copying and groups go on. It is tried again every few seconds, and told again "
        "when the reason changes."
    ),
}
