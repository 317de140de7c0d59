"""What it costs to collect source offsets as runs, and to encode and decode blocks of the offset map.

    python -m benchmarks.offset_map

Prints the best of several rounds. The bars: 64 ns a record where offsets have gaps, 8 us a section.
"""

from __future__ import annotations

import sys
import timeit
from collections.abc import Callable
from dataclasses import replace

from replicator.offset_map.block import decode_block, encode_blocks
from replicator.offset_map.runs import runs_of
from replicator.offset_map.section import RECORDS_DIGEST, MapSection

RECORDS, ROUNDS = 10_000, 15
SECTION = MapSection(
    source_topic_id=bytes(16),
    partition=3,
    before=212_000_000,
    after=212_000_102,
    leader_epoch=3,
    first_target=231_000_000,
    count=62_000_000,
    digest_kind=RECORDS_DIGEST,
    digest=bytes(range(16)),
    runs=((212_000_000, 212_000_100),),
)


def offsets(length: int) -> list[int]:
    """Source offsets with a gap of one after each run of `length` records."""
    start = SECTION.before
    return [start + i + i // length for i in range(RECORDS)]


def nanoseconds(run: Callable[[], object], each: int) -> float:
    """The best time of a round, for each of so many parts."""
    timer = timeit.Timer(run)
    number = max(1, timer.autorange(lambda count, took: None)[0] // 4)
    return min(timer.repeat(ROUNDS, number)) / number / each * 1e9


def main() -> None:
    """Measure and print."""
    lines = []
    for length in (RECORDS, 1_000, 100, 10, 2, 1):
        given = offsets(length)
        taken = nanoseconds(lambda given=given: runs_of(given), RECORDS)  # type: ignore[misc]
        lines.append(f"collect, runs of {length:6}: {taken:8.1f} ns a record")
    sections = [replace(SECTION, partition=number) for number in range(100)]
    (block,) = encode_blocks(1, 0, 0, sections)
    lines.append(f"encode a section       : {nanoseconds(lambda: encode_blocks(1, 0, 0, sections), 100) / 1e3:8.2f} us")
    lines.append(f"decode a section       : {nanoseconds(lambda: decode_block(block), 100) / 1e3:8.2f} us")
    runs = [(SECTION.before + 101 * i, SECTION.before + 101 * i + 100) for i in range(RECORDS)]
    large = [replace(SECTION, after=runs[-1][1], runs=tuple(runs))]
    (block_of_runs,) = encode_blocks(1, 0, 0, large)
    lines.append(f"encode a run           : {nanoseconds(lambda: encode_blocks(1, 0, 0, large), RECORDS):8.1f} ns")
    lines.append(f"decode a run           : {nanoseconds(lambda: decode_block(block_of_runs), RECORDS):8.1f} ns")
    lines.append(f"a section, a run       : {len(block) / 100:.1f} bytes, {len(block_of_runs) / RECORDS:.2f} bytes")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
