"""What can happen to a flow's partition, each as one function; and the classes of histories that are made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from replicator.offset_map.section import DroppedRecord, MapSection, SetAside
from tests.model.map_repair import can_repair, repair
from tests.model.map_world import ABORTED, MARKER, Entry, Made, MapWorld, ModelLog, runs_of_copies

Act = Callable[[MapWorld], None]
Copies = list[tuple[int, Made]]
ALTERED = 1_000_000
"""Contents above it are those of altered copies."""


def size(world: MapWorld, most: int) -> int:
    """From 1 to `most`, small ones as likely as large ones; more in the few large histories."""
    most *= world.scale
    return max(1, min(most, int(most ** world.drawn.random() + 0.5)))


def taken(world: MapWorld) -> Copies:
    """What the next transaction reads; new records come in if there are none."""
    if not world.ready() or world.drawn.random() < 0.5:
        world.produce(size(world, 12))
    ready = world.ready()
    return ready[: size(world, len(ready))] if ready else []


def after(world: MapWorld, copies: Copies) -> int:
    """The position behind these records; now and then past the offsets without records that follow."""
    position = copies[-1][0] + 1
    if world.drawn.random() < 0.3:
        ready = [offset for offset, _ in world.ready() if offset >= position]
        position = ready[0] if ready else world.source.end
    return position


def committed(world: MapWorld, copies: Copies, section: MapSection, written: Copies | None = None) -> None:
    """A section of `copies`, of which `written` were put on the target."""
    contents = tuple(made.content for _, made in (copies if written is None else written))
    world.commit(section, contents)
    world.position = section.after


def copy(world: MapWorld) -> None:
    """One transaction, rightly done."""
    copies = taken(world)
    if copies:
        first = world.write(copies)
        committed(world, copies, world.section(after(world, copies), runs_of_copies(copies), first))


def copy_several(world: MapWorld) -> None:
    for _ in range(size(world, 6)):
        copy(world)


def go_on_quietly(world: MapWorld) -> None:
    """Only markers and aborted records: the position moves without a record."""
    if not world.ready() and world.position < world.source.end:
        world.commit(world.section(world.source.end, [], -1))
        world.position = world.source.end


def produce_aborted(world: MapWorld) -> None:
    world.produce(size(world, 6), aborts=True)


def abort_at_target(world: MapWorld) -> None:
    """A transaction that was aborted: its block is aborted with it."""
    world.target.entries += [ABORTED] * size(world, 8) + [MARKER]


def next_generation(world: MapWorld) -> None:
    """The partition's blocks go to another partition of the map topic: their offsets there may be lower."""
    world.generation += world.drawn.randrange(1, 3)
    world.map_offset = world.drawn.randrange(0, 20)


def source_retention(world: MapWorld) -> None:
    """Of what the flow has passed, or nothing."""
    world.source.start = max(world.source.start, world.drawn.randrange(world.position + 1))


def target_retention(world: MapWorld) -> None:
    world.target.start = max(world.target.start, world.drawn.randrange(world.target.end + 1))


def clean_source(world: MapWorld) -> None:
    world.compacted_source = True
    world.source.clean(world.drawn.randrange(world.source.end + 1), world.drawn.random() < 0.5)


def clean_target(world: MapWorld) -> None:
    world.compacted_target = True
    world.target.clean(world.drawn.randrange(world.target.end + 1), world.drawn.random() < 0.5)


def truncate_target(world: MapWorld) -> None:
    """An unclean election: the target loses its end, and these offsets are used again."""
    lost = min(size(world, 12), world.target.end - world.target.start)
    del world.target.entries[world.target.end - lost :]


def truncate_source(world: MapWorld) -> None:
    """The source loses its end and gets other records there; the operator lets the flow go on from the loss.

    Before the first block behind an adoption the map can't tell the two apart.
    """
    if world.base and not world.copied:
        return
    lost = min(size(world, 12), world.source.end - world.source.start)
    del world.source.entries[world.source.end - lost :]
    if world.source.end < world.position:
        world.position, world.base = world.source.end, True
        world.commit(world.section(world.position, [], world.target.end))
        world.truncations.add(world.sections[-1][:3])


def adopt_below(world: MapWorld) -> None:
    """The position had gone, and the operator has named an offset below it: from there on it is copied again."""
    world.position = world.drawn.randrange(world.source.start, max(world.source.start, world.position) + 1)
    _adopted(world)


def adopt_above(world: MapWorld) -> None:
    """The same, above it: another program has copied what is between, or nobody has."""
    between = world.ready()
    between = between[: world.drawn.randrange(len(between) + 1)]
    if between:
        world.position = between[-1][0] + 1
        if world.drawn.random() < 0.7:
            world.target.entries += [Entry("record", made) for _, made in between]
        _adopted(world)


def _adopted(world: MapWorld) -> None:
    world.base, world.copied = True, 0
    next_generation(world)


def change_source(world: MapWorld) -> None:
    """As `truncate_source`, but nobody noticed: another record stands where one was copied, or none."""
    at = [offset for offset, _ in world.source.records(world.position)]
    if at:
        other = Entry("record", world.make()) if world.drawn.random() < 0.7 else MARKER
        world.source.entries[world.drawn.choice(at)] = other


def write_by_others(world: MapWorld) -> None:
    """Somebody else writes to the target; also what equals a record of the flow."""
    for _ in range(size(world, 4)):
        known = list(world.source.records(world.source.end))
        made = world.drawn.choice(known)[1] if known and world.drawn.random() < 0.3 else world.make()
        world.target.entries.append(Entry("record", replace(made)))


def create_source_again(world: MapWorld) -> None:
    world.source = ModelLog(world.source.number + 1)
    world.produce(size(world, 10))
    world.position, world.base, world.copied = 0, True, 0
    next_generation(world)
    world.claim()


def create_target_again(world: MapWorld) -> None:
    """The flow copies the topic anew, from its beginning."""
    world.target = ModelLog(world.target.number + 1)
    world.position, world.base, world.copied = world.source.start, True, 0
    next_generation(world)
    world.claim()


def set_position_back(world: MapWorld) -> None:
    """A bug: a position that was committed before is taken for the last one. What was copied is copied again, and the
    chain of the map is broken."""
    ours = [
        one.section
        for one in world.sections
        if (one.section.source_topic_id, one.target_topic_id) == (world.source.topic_id, world.target.topic_id)
    ]
    old = world.drawn.choice(ours)
    if world.source.start <= old.after < world.position:
        world.position, world.copied = old.after, old.count


def skip(world: MapWorld) -> None:
    """Records are left out, from the target and from the map."""
    copies = taken(world)
    kept = [one for one in copies if world.drawn.random() < 0.7]
    if copies and kept:
        first = world.write(kept)
        committed(world, kept, world.section(copies[-1][0] + 1, runs_of_copies(kept), first))


def double(world: MapWorld) -> None:
    """A record is written twice; the map doesn't know."""
    copies = taken(world)
    if copies:
        at = world.drawn.randrange(len(copies))
        written = [*copies[: at + 1], copies[at], *copies[at + 1 :]]
        first = world.write(written)
        committed(world, copies, world.section(after(world, copies), runs_of_copies(copies), first), written)
        world.map_wrong = True


def swap(world: MapWorld) -> None:
    """Two records are written in the wrong order."""
    copies = taken(world)
    if len(copies) > 1:
        one, other = sorted(world.drawn.sample(range(len(copies)), 2))
        written = list(copies)
        written[one], written[other] = written[other], written[one]
        first = world.write(written)
        committed(world, copies, world.section(after(world, copies), runs_of_copies(copies), first), written)
        world.map_wrong = True


def alter(world: MapWorld) -> None:
    """A copy is another one than it should be, be it written so or damaged later."""
    copies = taken(world)
    if copies:
        at = world.drawn.randrange(len(copies))
        key = copies[at][1].key
        altered = Made(ALTERED + world.made + 1, key)
        world.made += 1
        first = world.write(copies)
        world.target.entries[first + at] = Entry("record", altered, (world.source.number, copies[at][0]))
        written = [*copies[:at], (copies[at][0], altered), *copies[at + 1 :]]
        section = world.section(after(world, copies), runs_of_copies(copies), first)
        committed(world, copies, section, written if world.drawn.random() < 0.5 else copies)


def shift_runs(world: MapWorld) -> None:
    """The map says other source offsets than were copied."""
    copies = taken(world)
    if copies:
        first, by = world.write(copies), world.drawn.choice((1, 2, 3))
        runs = [(begin + by, end + by) for begin, end in runs_of_copies(copies)]
        committed(world, copies, world.section(max(after(world, copies), runs[-1][1]), runs, first))
        world.map_wrong = True


def leave_out_run(world: MapWorld) -> None:
    """A run of what was copied isn't in the map."""
    copies = taken(world)
    runs = runs_of_copies(copies)
    if len(runs) > 1:
        first = world.write(copies)
        del runs[world.drawn.randrange(len(runs))]
        committed(world, copies, world.section(after(world, copies), runs, first))
        world.map_wrong = True


def claim_twice(world: MapWorld) -> None:
    """The map puts copies where others stand."""
    copies = taken(world)
    if copies:
        first = world.write(copies)
        wrong = max(0, first - size(world, 6))
        committed(world, copies, world.section(after(world, copies), runs_of_copies(copies), wrong))
        world.map_wrong = True


def run_twice(world: MapWorld) -> None:
    """A second section claims what an earlier one did, for later places."""
    old = [placed.section for placed in world.sections if placed.section.runs]
    copies = taken(world)
    if old and copies and not world.base:
        first = world.write(copies)
        again = world.drawn.choice(old).runs[:1]
        if again[0][1] <= world.position and again[0][1] - again[0][0] <= len(copies):
            committed(world, copies, replace(world.section(after(world, copies), runs_of_copies(copies), first)))
            world.commit(world.section(world.position, list(again), first))
            world.map_wrong = True
            return
        committed(world, copies, world.section(after(world, copies), runs_of_copies(copies), first))


def block_without_transaction(world: MapWorld) -> None:
    """The block was committed, the records were not."""
    copies = taken(world)
    if copies:
        first = world.target.end
        world.target.entries += [ABORTED] * len(copies) + [MARKER]
        committed(world, copies, world.section(after(world, copies), runs_of_copies(copies), first))
        world.map_wrong = True


def map_off(world: MapWorld) -> None:
    """Copied without a map for a while; it begins again as `base`."""
    for _ in range(size(world, 3)):
        lose_block(world)
    world.base = True


def lose_block(world: MapWorld) -> None:
    """A transaction of which the map's part was lost."""
    copies = taken(world)
    if copies:
        world.write(copies)
        world.copied += len(copies)
        world.position = after(world, copies)


def leave_some_out(world: MapWorld) -> None:
    """Some records are set aside, some dropped by a rule."""
    copies = taken(world)
    fates = [world.drawn.choice(("copied", "copied", "aside", "dropped")) for _ in copies]
    kept = [one for one, fate in zip(copies, fates, strict=True) if fate == "copied"]
    if kept:
        first = world.write(kept)
        aside = tuple(
            SetAside(one[0], 0, n) for n, (one, fate) in enumerate(zip(copies, fates, strict=True)) if fate == "aside"
        )
        dropped = tuple(DroppedRecord(one[0], 0) for one, fate in zip(copies, fates, strict=True) if fate == "dropped")
        position = max(after(world, kept), copies[-1][0] + 1)
        section = world.section(position, runs_of_copies(kept), first, aside=aside, dropped=dropped)
        committed(world, kept, section)


def sign_gap(world: MapWorld) -> None:
    """The operator lets the flow go on behind some records."""
    copies = taken(world)
    if copies and not world.base:
        committed(world, [], world.section(copies[-1][0] + 1, [], -1, gap=True))


def repair_now(world: MapWorld) -> None:
    """A repair in the middle: its copies stand behind later ones."""
    if not world.base and can_repair(world):
        repair(world)


ALWAYS: Sequence[Act] = (copy, copy, copy_several)
CLASSES: dict[str, Sequence[Act]] = {
    "plain": (go_on_quietly,),
    "aborts at the source": (produce_aborted, go_on_quietly),
    "aborts at the target": (abort_at_target,),
    "generations": (next_generation, abort_at_target),
    "source retention": (source_retention,),
    "target retention": (target_retention,),
    "retention on both sides": (source_retention, target_retention),
    "source compacted": (clean_source,),
    "target compacted": (clean_target,),
    "both compacted": (clean_source, clean_target, target_retention),
    "target truncated": (truncate_target,),
    "source truncated": (truncate_source,),
    "adopted": (adopt_below, adopt_above),
    "adopted and damaged": (adopt_below, adopt_above, truncate_source, truncate_target, repair_now, produce_aborted),
    "source changed": (change_source,),
    "others write": (write_by_others,),
    "source created again": (create_source_again,),
    "target created again": (create_target_again,),
    "copier skips": (skip,),
    "copier doubles": (double, set_position_back),
    "copier swaps": (swap,),
    "copier alters": (alter,),
    "runs shifted": (shift_runs,),
    "runs left out": (leave_out_run, produce_aborted),
    "runs twice": (claim_twice, run_twice),
    "block without its transaction": (block_without_transaction,),
    "set aside, dropped, signed": (leave_some_out, sign_gap),
    "map off": (map_off, lose_block),
    "others write, compacted": (write_by_others, clean_target),
    "repaired": (skip, repair_now, truncate_target, target_retention),
    "compacted and damaged": (skip, swap, alter, write_by_others, repair_now, clean_target, clean_target, clean_source),
}
MIXED: Sequence[Act] = tuple(dict.fromkeys(act for acts in CLASSES.values() for act in acts))
