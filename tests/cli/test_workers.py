"""`workers`: what it shows on a terminal of 80 columns."""

from __future__ import annotations

import io

from rich.console import Console

from cli.commands.workers import _as_json, show
from replicator.flow.group_members import FlowWorkers, HeldLane, ShownWorker
from replicator.inspect.workers import FoundWorkers
from replicator.state.kept_positions import KeptPositions

NOW_MS = 1_800_000_000_000
LONG = "ip-10-20-30-40.eu-central-1.compute.internal"


def worker(host: str, *lanes: int, pid: int | None = 4711) -> ShownWorker:
    held = tuple(HeldLane(lane=lane, since_ms=NOW_MS) for lane in lanes)
    return ShownWorker(host=host, pid=pid, address="/10.20.30.40", lanes=held, version="1.2.3", generation=3)


def found(*workers: ShownWorker, unassigned: tuple[int, ...] = (), **facts: object) -> FoundWorkers:
    shared = FlowWorkers(flow="orders", generation=3, lanes=64, workers=workers, unassigned=unassigned)
    return FoundWorkers(workers=shared, **facts)  # type: ignore[arg-type]


def drawn(it: FoundWorkers, *, terminal: bool = True) -> list[str]:
    said = io.StringIO()
    show(Console(width=80, file=said, force_terminal=terminal, color_system=None, highlight=False), it)
    return said.getvalue().splitlines()


def test_names_that_fit_stand_in_a_table() -> None:
    lines = drawn(found(worker("host-1", 0, 1), worker("host-2", 2)))
    assert lines[0] == "orders: generation 3, 64 lanes"
    with_one = FlowWorkers(flow="orders", generation=3, lanes=1, workers=(worker("host-1", 0),), unassigned=())
    assert drawn(FoundWorkers(workers=with_one))[0] == "orders: generation 3, 1 lane"
    [row] = [line for line in lines if "host-1" in line]
    assert row.split() == ["host-1:4711", "/10.20.30.40", "1.2.3", "0,", "1", "2027-01-15T08:00:00Z"]


def test_names_are_whole_and_all_fits_a_terminal() -> None:
    many = found(
        worker(LONG, *range(40)),
        worker("rdkafka", pid=None),
        worker("h", *range(40, 44)),
        unassigned=tuple(range(44, 64)),
    )
    lines = drawn(many)
    assert max(map(len, lines)) <= 80, lines
    said = " ".join(" ".join(lines).split())
    assert f"{LONG}:4711 at /10.20.30.40, version 1.2.3, since 2027-01-15T08:00:00Z, lanes 0, 1, 2, 3" in said
    assert "not assigned: lanes 44, 45, 46" in said
    assert "rdkafka at /10.20.30.40 is no worker: it must not be a member of this group" in said
    assert any(len(line) > 100 for line in drawn(many, terminal=False)), "one line each in a file or pipe"


def test_who_keeps_the_positions_of_a_flow_that_was_failed_over_is_told() -> None:
    kept = KeptPositions(owner=f"{LONG}:1:a", at_ms=NOW_MS, partitions=3, generation=3)
    over = found(
        failed_over="it was failed over (generation 3, by ann): nothing is copied until failover --undo", kept_by=kept
    )
    lines = drawn(over)
    assert max(map(len, lines)) <= 80, lines
    said = " ".join(" ".join(lines).split())
    assert "orders: it was failed over (generation 3, by ann)" in said
    assert f"its positions are kept by {LONG}:1:a, which has committed them last at 2027-01-15T08:00:00Z" in said
    assert _as_json(over)["kept_by"]["at"] == "2027-01-15T08:00:00Z"
    assert _as_json(found())["kept_by"] is None


def test_workers_of_a_flow_that_is_only_being_failed_over_are_shown() -> None:
    half = found(worker("host-1", 0, 1), being_failed_over="it is being failed over (generation 3): workers may copy")
    said = " ".join(" ".join(drawn(half)).split())
    assert "orders: it is being failed over (generation 3): workers may copy" in said
    assert "host-1:4711" in said
    assert (_as_json(half)["failed_over"], _as_json(half)["being_failed_over"]) == ("", half.being_failed_over)


def test_workers_may_still_copy_while_no_generation_is_open() -> None:
    workers = (worker("host-1"), worker("host-2"))
    none_open = FlowWorkers(flow="orders", generation=None, lanes=0, workers=workers, unassigned=())
    half = FoundWorkers(workers=none_open, being_failed_over="it is being failed over: workers may still copy")
    said = " ".join(" ".join(drawn(half)).split())
    assert "orders: no generation is open" in said
    assert ("host-1:4711" in said, "host-2:4711" in said) == (True, True)
    assert "host-1" not in " ".join(drawn(FoundWorkers(workers=none_open)))
