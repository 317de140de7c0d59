"""The verdict as a page: all of it is escaped, nothing is loaded, and what is lacking comes first."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from replicator.coupling.source_transactions import HalfCopied, PartCopied, RecordRange
from replicator.failover import page
from replicator.failover.verdict import FailedGroup, FailedPartition, FailoverVerdict, TransactionsSeen
from replicator.model.partition import Partition

pytestmark = pytest.mark.tier("default")

AT_MS = 1_700_000_000_000
EVIL = '<script>alert("1")</script>\x1b[2J'


def row(topic: str, position: int | None, end: int | None, problem: str = "") -> FailedPartition:
    return FailedPartition(Partition(topic, 0), Partition("t", 0), position, end, problem)


def verdict(*rows: FailedPartition) -> FailoverVerdict:
    return FailoverVerdict(
        flow=EVIL, source=EVIL, target=EVIL, generation=4, by=EVIL, at_ms=AT_MS, ends_seen_ms=AT_MS,
        partitions=rows, groups=[FailedGroup(EVIL, 3, 1, 0, True)],
    )  # fmt: skip


def test_what_comes_from_elsewhere_is_escaped() -> None:
    html = page.html(verdict(row(EVIL, 1, 2, EVIL)))
    assert "<script" not in html
    assert "\x1b" not in html
    assert html.count("&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;\\u001b[2J") >= 6


def test_half_copied_transactions_have_their_producer_partitions_and_offsets() -> None:
    parts = (
        PartCopied(Partition(EVIL, 0), RecordRange(3, 1_009), 1_010, copied=True),
        PartCopied(Partition("b", 0), RecordRange(7, None), 7, copied=False),
    )
    it = HalfCopied(EVIL, 77, 5, 5, committed=True, parts=parts)
    seen = TransactionsSeen(AT_MS, AT_MS - 1_000, 0, "")
    html = page.html(replace(verdict(row("a", 5, 5)), transactions=(it,), transactions_seen=seen))
    assert "<script" not in html
    for words in (
        "1 transaction of the source is half copied, as of the last look at 2023-11-14 22:13:20 UTC",
        "producer id 77, epoch 5, committed",
        "copied (within offsets 3 to 1,009; copied up to 1,010)",
        "not copied (within offsets 7 to ?; copied up to 7)",
    ):
        assert words in html, words
    assert "they were never looked at" in page.html(verdict(row("a", 5, 5)))
    never = replace(verdict(row("a", 5, 5)), transactions_seen=seen._replace(looked_ms=0, problem=EVIL))
    assert "never looked at (&lt;script&gt;" in page.html(never)


def test_it_is_one_file_for_any_screen() -> None:
    html = page.html(verdict(row("a", 1, 2)))
    assert not re.search(r"<(script|link|img|iframe)|url\(|@import|https?:", html)
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html
    assert "@media (max-width" in html


def test_what_is_lacking_comes_first_and_signs_tell_it_without_colours() -> None:
    html = page.html(
        verdict(row("whole", 5, 5), row("behind", 2, 1_005), row("unknown", None, 3, "it has no position"))
    )
    assert html.index("behind[0]") < html.index("whole[0]")
    assert html.index("unknown[0]") < html.index("whole[0]")
    assert all(
        words in html for words in ("lacks offsets", "not known", "all that was seen", "1,003", "it has no position")
    )
    assert 'class="headline bad"' in html
    assert 'class="headline good"' in page.html(verdict(row("whole", 5, 5)))
    assert 'class="headline open"' in page.html(verdict(row("unknown", None, 3)))
    assert "committed by somebody else" in html


def test_what_was_undone_and_what_was_rehearsed_is_said() -> None:
    found = verdict(row("a", 1, 1))
    assert "undone since" in page.html(found, stands=False)
    assert "rehearsed, nothing was changed" in page.html(replace(found, generation=None))


def test_of_a_large_flow_it_shows_a_part() -> None:
    rows = [row(f"t{number}", 1, 1) for number in range(page.PARTITIONS_SHOWN + 1)]
    html = page.html(verdict(*rows))
    assert html.count('class="name"') == page.PARTITIONS_SHOWN + 1
    assert "1 more partition:" in html
