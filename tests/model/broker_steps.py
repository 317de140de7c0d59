"""What the broker does by itself in the generation model: time out, complete, apply, and deliver what is late."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model import world as w
from tests.model.control_log import fold
from tests.model.explore import Bad, Step
from tests.model.world import Changer, Late, Worker, World

IDS = [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]  # (generation, lane); changer c cuts the flow into c + 1 lanes
ID = {at: number for number, at in enumerate(IDS)}
HOSTS = len(IDS)  # from here on: ids by worker, for the mutation that makes them so


def name(holder: int) -> str:
    """The id as a person reads it."""
    return "id {}.{}".format(*IDS[holder]) if holder < HOSTS else f"id of host {holder - HOSTS}"


def holder_of(number: int, worker: Worker, by_host: bool) -> int:
    """The transactional id that a worker uses."""
    return HOSTS + number if by_host else ID[worker.generation, worker.lane]


def fence(world: World, holder: int, but: int, *, by_host: bool = False, verified: bool = True) -> World:
    """Whoever held the id can write no more, nor can its request in the air."""
    workers = tuple(
        Worker() if number != but and worker.at > 2 and holder_of(number, worker, by_host) == holder else worker
        for number, worker in enumerate(world.workers)
    )
    air = world.air
    if air and air[1] == holder:
        air = None if verified or air[0] != "produce" else (air[0], air[1], air[2], True)
    return world._replace(workers=workers, air=air)


def fence_control(world: World) -> World:
    """The control id has a new holder: what the others have sent is refused, an open write will be aborted."""
    return world._replace(changers=(Changer(),) * 2, notes=((), ()))


def control_steps(world: World) -> Iterator[Step[World]]:
    """The control topic's transaction, one at a time: a changer's records arrive, then its EndTxn, then the marker.

    Raises Bad if the program could not read the topic after it.
    """
    if world.control in (w.COMMITTING, w.ABORTING):
        after = w.control_end(world)
        if fold(after.log) is None:
            raise Bad("unreadable", f"broker: the control marker is written: {after.log}")
        yield "broker: the control marker is written", after
        return
    if world.control == w.OPEN:
        yield "broker: the control id times out", fence_control(world._replace(control=w.ABORTING))
    for number, note in enumerate(world.notes):
        if not note:
            continue
        after = world._replace(notes=w.put(world.notes, number, note[1:]))
        if note[0] is not None and world.control == w.NONE:
            written = after._replace(log=world.log + note[0], control=w.OPEN)
            yield f"broker: {note[0]} of changer {number} arrives", written
        elif note[0] is None and world.control == w.OPEN:
            yield f"broker: EndTxn of changer {number} arrives", after._replace(control=w.COMMITTING)


def late_steps(world: World, late: Late) -> Iterator[Step[World]]:
    """A request without a client arrives. A stale one gets here only where partitions are not verified."""
    kind, holder, value, stale = late
    label, after = f"broker: late {kind} {value} of {name(holder)} arrives", world._replace(air=None)
    txn = world.txns[holder]
    if kind == "produce" and stale:
        yield label, after._replace(opens=(*world.opens, w.Entry(holder, value)))
    elif kind == "produce" and txn.phase in (w.NONE, w.OPEN):
        yield label, w.append(after, holder, value)
    elif kind == "position" and txn.phase in (w.NONE, w.OPEN):
        yield label, w.store(after, holder, value)
    elif kind == "end" and txn.phase == w.OPEN:
        yield label, w.commit(after, holder, label)
