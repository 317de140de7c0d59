"""Compares the last block of each position by its digest, after both sides were compared.

The driver does it: of each partition no more than one transaction is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from replicator.config import Flow
from replicator.model.counting import counted
from replicator.model.errors import Incident, Unsupported
from replicator.model.partition import Partition
from replicator.proof.last_block import names_block, with_last_block
from replicator.proof.outcome import PartitionOutcome
from replicator.proof.pairs import Pair
from replicator.proof.partition_side import PartitionSide


def look_at_last_blocks(
    flow: Flow,
    pairs: Sequence[Pair],
    outcomes: Mapping[Partition, PartitionOutcome],
    say: Callable[..., object],
) -> tuple[dict[Partition, PartitionOutcome], list[Incident]]:
    """Add what the last block of each position says.

    Args:
        outcomes: what was found otherwise, by source partition. Pairs without one are left out.
        say: told in a few words what begins.

    Returns:
        The outcomes, and the incidents that stop a comparison: those partitions have no outcome any more.

    Raises:
        Unreachable, NotAllowed, Retriable: as for other clients.
    """
    done, stopped = dict(outcomes), list[Incident]()
    looked = [pair for pair in pairs if pair.source in outcomes and names_block(pair)]
    if not looked:
        return done, stopped
    say(f"comparing the last block of {counted(len(looked), 'position')}")
    for pair in looked:
        outcome = outcomes[pair.source]
        try:
            with PartitionSide(flow, flow.target, pair.target, pair.target_id) as target:
                done[pair.source] = with_last_block(outcome, pair, target)
        except Incident as incident:
            stopped.append(incident)
            del done[pair.source]
        except Unsupported as error:
            note = f"the position's last block was not compared by its digest: {error}"
            done[pair.source] = replace(outcome, notes=(*outcome.notes, note))
    return done, stopped
