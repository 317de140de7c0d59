"""Creates both coordinators for `Broker`, and connects them: markers end transactions with offsets of groups."""

from __future__ import annotations

from embedded_broker.coordinators.groups import GroupCoordinator
from embedded_broker.coordinators.markers import MarkerWriter
from embedded_broker.coordinators.ports import CoordinatorHost, GroupConfig, TransactionConfig
from embedded_broker.coordinators.transactions import TransactionCoordinator


def compose(
    host: CoordinatorHost, groups: GroupConfig | None = None, transactions: TransactionConfig | None = None
) -> tuple[GroupCoordinator, TransactionCoordinator]:
    """Build both coordinators of a broker. Replay their logs, then start the groups, then the transactions."""
    group_coordinator = GroupCoordinator(host, groups)
    markers = MarkerWriter(host, group_coordinator.offsets.end_transaction)
    return group_coordinator, TransactionCoordinator(host, markers, transactions)
