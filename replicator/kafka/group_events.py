"""What the thread of `group_consumer` tells the flow's thread. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from replicator.model.errors import ReplicatorError
from replicator.workers.proofs import ProofAnswer


@dataclass(frozen=True, slots=True)
class LanesAssigned:
    """A rebalance has ended: `lanes` is the whole assignment, not only what is new."""

    lanes: frozenset[int]


@dataclass(frozen=True, slots=True)
class LanesRevoked:
    """The group takes lanes away, to give them to another worker."""

    lanes: frozenset[int]


@dataclass(frozen=True, slots=True)
class MembershipLost:
    """This worker is no member any more, and nobody knows who runs its lanes."""


@dataclass(frozen=True, slots=True)
class MemberIdChanged:
    """The consumer has another member id than before."""


@dataclass(frozen=True, slots=True)
class ProofAnswered:
    """What became of a proof."""

    answer: ProofAnswer


@dataclass(frozen=True, slots=True)
class LanesTopicUnfit:
    """The group has given this worker partitions that are no lanes: the lanes topic has more than the flow has lanes.
    They stand in no other event."""

    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class GroupTrouble:
    """What the client reports, once until something else happens: a coordinator that is away, a right that is missing,
    a member that speaks another protocol. The client goes on trying by itself."""

    error: ReplicatorError


@dataclass(frozen=True, slots=True)
class GroupEnded:
    """The thread has ended, and told everything. `error`: a bug; None: it was asked to."""

    error: BaseException | None


GroupEvent = (
    LanesAssigned
    | LanesRevoked
    | MembershipLost
    | MemberIdChanged
    | ProofAnswered
    | LanesTopicUnfit
    | GroupTrouble
    | GroupEnded
)
