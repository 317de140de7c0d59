"""The world of the generation model: what the target cluster knows, and what its coordinator does.

One source partition with `RECORDS` records, one target partition, one record a transaction. Epochs are not counted:
whoever initialises an id fences its holder, and a fenced process can do nothing more (all its writes are refused), so
it is off at once. That keeps the world finite without cutting anything off. Where it differs from Kafka it errs on the
side of more trouble: committed offsets are applied some time *after* the transaction is complete, as older brokers do.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from tests.model.explore import Bad

Item = TypeVar("Item")
RECORDS = 2
NONE, OPEN, COMMITTING, ABORTING = range(4)  # phases of a transaction at its coordinator


class Txn(NamedTuple):
    """A transactional id at its coordinator; -1: none.

    `pending` is the position in the transaction under way, `late` one of a complete transaction that the group
    coordinator has not applied yet.
    """

    phase: int = NONE
    pending: int = -1
    late: int = -1


class Entry(NamedTuple):
    """A record in the target's log whose fate is open. `overtaken`: a later one in the log is committed already."""

    holder: int
    record: int
    overtaken: bool = False


class Worker(NamedTuple):
    """A worker process: where it is in the lane's steps (see `actors`), for which lane, with which position.

    `end` is the control topic's end that it waits for.
    """

    at: int = 0
    generation: int = 0
    lane: int = 0
    end: int = -1
    position: int = -1


class Changer(NamedTuple):
    """A process that changes the generation: its step, how much of the control log it has read, ids left to fence."""

    at: int = 0
    seen: int = 0
    left: tuple[int, ...] = ()


Record = tuple[int, str, int, int]  # of the control topic: generation, phase, lanes, stored start (-1: none)
Late = tuple[str, int, int, bool]  # request, id, record or position, whether the id was initialised since


class World(NamedTuple):
    """Everything.

    `copied`    records whose commit is decided end there, or the step was Bad; -1 before the first
    `position`  (next record, generation) as a read without require-stable gives it
    `log`       the control topic; from `stable` on it belongs to a transaction in phase `control`
    `notes`     control writes that each changer has sent and that have not arrived: records, then None for EndTxn
    `air`       a worker's request that nobody waits for any more
    `end`       records that the source holds
    `owed`      how many it held when the first `open` was committed: all later ones must be copied
    """

    copied: int
    position: tuple[int, int]
    txns: tuple[Txn, ...]
    opens: tuple[Entry, ...]
    workers: tuple[Worker, ...]
    changers: tuple[Changer, ...]
    log: tuple[Record, ...]
    stable: int
    control: int
    notes: tuple[tuple[tuple[Record, ...] | None, ...], ...]
    air: Late | None
    end: int = RECORDS
    owed: int = 0


def commit(world: World, holder: int, label: str) -> World:
    """EndTxn(commit) reaches the coordinator: the fate of all records of `holder` is decided, in log order.

    Raises Bad if a reader would see a record twice, miss one, or see two in the wrong order.
    """
    copied, left = world.copied, list[Entry]()
    for entry in world.opens:
        if entry.holder != holder:
            left.append(entry)
            continue
        if entry.record < copied:
            raise Bad("doubled", label)
        if entry.record > max(copied, world.owed if copied < 0 else 0):
            raise Bad("lost", label)
        if entry.overtaken:
            raise Bad("reordered", label)
        copied = entry.record + 1
        left = [before._replace(overtaken=True) for before in left]
    txns = put(world.txns, holder, world.txns[holder]._replace(phase=COMMITTING))
    return world._replace(copied=copied, opens=tuple(left), txns=txns)


def abort(world: World, holder: int) -> World:
    """EndTxn(abort), a timeout, or an InitProducerId over an open transaction: its records will never be seen."""
    opens = tuple(entry for entry in world.opens if entry.holder != holder)
    txn = world.txns[holder]._replace(phase=ABORTING, pending=-1)
    return world._replace(opens=opens, txns=put(world.txns, holder, txn))


def complete(world: World, holder: int) -> World:
    """All markers are written: the id can be used again. A committed position is still to be applied."""
    txn = world.txns[holder]
    late = txn.pending if txn.phase == COMMITTING and txn.pending >= 0 else txn.late
    return world._replace(txns=put(world.txns, holder, Txn(NONE, -1, late)))


def apply_position(world: World, holder: int, generation: int) -> World:
    """The group coordinator makes a committed position readable."""
    txn = world.txns[holder]
    return world._replace(position=(txn.late, generation), txns=put(world.txns, holder, txn._replace(late=-1)))


def unstable(world: World) -> bool:
    """Whether a position hangs on a transaction: a read with require-stable is refused then."""
    return any(txn.pending >= 0 or txn.late >= 0 for txn in world.txns)


def append(world: World, holder: int, record: int) -> World:
    """Produce: a record at the end of the target's log, its transaction open."""
    txn = world.txns[holder]._replace(phase=OPEN)
    return world._replace(opens=(*world.opens, Entry(holder, record)), txns=put(world.txns, holder, txn))


def store(world: World, holder: int, position: int) -> World:
    """TxnOffsetCommit: the position hangs on the transaction."""
    return world._replace(txns=put(world.txns, holder, world.txns[holder]._replace(phase=OPEN, pending=position)))


def control_end(world: World) -> World:
    """The marker of the control topic's transaction is written: its records can be read, or never will be.

    A reader that waits for an end among aborted records has read all that there is below it.
    """
    if world.control == COMMITTING:
        opened = any(phase == "open" for _, phase, *_ in world.log)
        owed = world.end if world.owed < 0 and opened else world.owed
        return world._replace(control=NONE, stable=len(world.log), owed=owed)
    stable = world.stable
    workers = tuple(worker._replace(end=min(worker.end, stable)) for worker in world.workers)
    return world._replace(control=NONE, log=world.log[:stable], workers=workers)


def put(items: tuple[Item, ...], number: int, item: Item) -> tuple[Item, ...]:
    """`items` with one replaced."""
    return (*items[:number], item, *items[number + 1 :])
