"""Asks a cluster what it speaks: which APIs in which versions, and which versions of features it knows (ApiVersions).
No right is needed for that. Used by `inspect.plan_versions` and `flow.topics`.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress

from replicator.config import Cluster, Flow
from replicator.model.errors import Unreachable, Unsupported
from replicator.wire import protocol
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
"""By API key. Without one of them no flow can write its control topic and its positions, however it delivers."""

_BY_ALL = (
    "produce",
    "fetch",
    "list_offsets",
    "metadata",
    "find_coordinator",
    "init_producer_id",
    "add_partitions_to_txn",
    "end_txn",
    "txn_offset_commit",
)
"""APIs that each flow uses. Of these librdkafka knows no later version than `protocol.SPOKEN` has."""


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


def only_unknown_versions(cluster: Cluster, found: Spoken) -> Unsupported | None:
    """Return why a cluster can't be used, where it has no version of some API any more that is known here: it is of a
    later Kafka. Pure."""
    unknown = list[str]()
    for api in _BY_ALL:
        key, _, ours = protocol.SPOKEN[api]
        lowest, highest = found.apis.get(key, (0, 0))
        if lowest > ours:
            unknown.append(f"{api} {lowest} to {highest} (known here up to {ours})")
    if not unknown:
        return None
    return Unsupported(
        f"cluster {cluster.name!r} is an unknown, later version of Kafka: it speaks {', '.join(unknown)}"
    )


def check_target(flow: Flow) -> None:
    """Raise Unsupported where the target says that it has no transactions, or is a version of Kafka that isn't known
    here. Where it says nothing, a producer finds out."""
    fault = None
    with suppress(Unreachable, Unsupported):  # what is wrong with it is met again at once
        found = spoken(flow.target, f"eos-replicate.{flow.name}.setup")
        fault = without_transactions(flow.target, found) or only_unknown_versions(flow.target, found)
    if fault is not None:
        raise fault
