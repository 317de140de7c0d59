"""Asks a cluster what it speaks: which APIs in which versions, and which versions of features it knows (ApiVersions).
No right is needed for that. Used by `inspect.plan_versions` and `flow.topics`.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress

from replicator.config import Cluster, Flow
from replicator.model.errors import Unreachable, Unsupported
from replicator.wire.any_broker import AnyBroker
from replicator.wire.connection import ConnectionLost, Spoken

ASK_S = 5.0
_OF_TRANSACTIONS = {
    22: "InitProducerId",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    28: "TxnOffsetCommit",
}
"""APIs by key. Without one of them no flow can write its control topic and its positions, however it delivers."""


def spoken(cluster: Cluster, client_id: str, timeout_s: float = ASK_S) -> Spoken:
    """Ask any broker that lives. While brokers are upgraded others may speak other versions.

    Raises Unreachable, Unsupported, ConfigError.
    """
    deadline_s = time.monotonic() + timeout_s
    with closing(AnyBroker(cluster, client_id, features=True)) as brokers:
        while True:
            try:
                return brokers.connection().spoken
            except ConnectionLost:
                pause_s = brokers.pause_s()
                if time.monotonic() + pause_s >= deadline_s:
                    raise
                time.sleep(pause_s)


def without_transactions(cluster: Cluster, found: Spoken) -> Unsupported | None:
    """Return why a cluster can't be a flow's target, where it leaves out APIs of transactions. Pure."""
    missing = [name for key, name in _OF_TRANSACTIONS.items() if key not in found.apis]
    if not missing:
        return None
    return Unsupported(
        f"cluster {cluster.name!r} has no transactions: it doesn't speak {', '.join(missing)}, which a target must; "
        "some systems that are compatible with Kafka leave them out"
    )


def check_transactions(flow: Flow) -> None:
    """Raise Unsupported where the target says that it has no transactions. Where it says nothing, a producer finds
    out."""
    fault = None
    with suppress(Unreachable, Unsupported):  # what is wrong with it is met again at once
        fault = without_transactions(flow.target, spoken(flow.target, f"eos-replicate.{flow.name}.setup"))
    if fault is not None:
        raise fault
