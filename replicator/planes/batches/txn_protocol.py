"""Which of Kafka's two transaction protocols a producer session speaks, and with which versions. Pure.

Asked once for each session: a cluster that finalizes another version meanwhile serves the old protocol on.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from replicator.planes.batches.answer_classes import TxnApi

TRANSACTION_VERSION = "transaction.version"
"""The feature, as ApiVersions (v3 and later) lists it among the finalized ones."""


class TxnProtocol(IntEnum):
    """Kafka's transaction protocols.

    In V2 (KIP-890) every end of a transaction gives the next epoch, so that a request that comes late is refused;
    partitions and offsets are added by writing them. In V1 they are announced, and the epoch stays.
    """

    V1 = 1
    V2 = 2


_HIGHEST_IN_V1: Mapping[TxnApi, int] = {TxnApi.PRODUCE: 11, TxnApi.TXN_OFFSET_COMMIT: 4, TxnApi.END_TXN: 4}
_LOWEST_IN_V2: Mapping[TxnApi, int] = {TxnApi.PRODUCE: 12, TxnApi.TXN_OFFSET_COMMIT: 5, TxnApi.END_TXN: 5}
_BY_CLIENTS_MAX = 3
"""AddPartitionsToTxn: what brokers send each other begins with version 4."""


def choose_protocol(finalized: Mapping[str, int], offered: Mapping[TxnApi, tuple[int, int]]) -> TxnProtocol:
    """Decide on the protocol of a session.

    Args:
        finalized: the highest finalized version of each feature of the target.
        offered: lowest and highest version of each API that both sides speak.
    """
    speaks = all(offered.get(api, (0, -1))[1] >= lowest for api, lowest in _LOWEST_IN_V2.items())
    return TxnProtocol.V2 if speaks and finalized.get(TRANSACTION_VERSION, 0) >= 2 else TxnProtocol.V1


def version_of(protocol: TxnProtocol, api: TxnApi, offered: tuple[int, int]) -> int | None:
    """Return the version in which an API is used; None: there is none that both sides speak in this protocol.

    A broker takes Produce 12 or TxnOffsetCommit 5 for the second protocol, whatever was finalized.
    """
    lowest, highest = offered
    if api is TxnApi.ADD_PARTITIONS_TO_TXN:
        highest = min(highest, _BY_CLIENTS_MAX)
    if protocol is TxnProtocol.V1:
        highest = min(highest, _HIGHEST_IN_V1.get(api, highest))
    else:
        lowest = max(lowest, _LOWEST_IN_V2.get(api, lowest))
    return highest if lowest <= highest else None
