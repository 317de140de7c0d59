"""What the log events that tell of the source's transactions mean. Part of `log_meanings`."""

from __future__ import annotations

TRANSACTION_EVENTS = {
    "hold_topics_unknown": (
        "Which topics groups have to wait for isn't wholly known, and why (`groups.hold_with: auto`). Groups are moved "
        "without that. It is looked for again, and told again when the reason changes."
    ),
    "source_transactions_known_again": "The source's transactions can be looked at again.",
    "source_transactions_missed": (
        "Some of the source's `__transaction_state` was gone before it was read: of transactions that ended meanwhile "
        "a failover can't say whether they are half copied. Its verdict says since when all are known (`since_ms`)."
    ),
    "source_transactions_unknown": (
        "The source's transactions can't be looked at, and why: a failover now would know of no later ones than the "
        "last look has seen. Copying and groups go on. It is tried again every few seconds, and told again when the "
        "reason changes."
    ),
}
