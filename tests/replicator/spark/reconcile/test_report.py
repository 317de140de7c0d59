"""Reports: the page stands alone and escapes what it shows, and a directory is complete or not there."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from replicator.model.errors import ConfigError, Incident
from replicator.model.partition import Partition
from replicator.proof import headline, next_steps, page, report_directory, verdicts
from replicator.proof.by_content.record_verdicts import Finding
from replicator.proof.outcome import OffsetRange
from replicator.proof.outcome_json import as_json
from replicator.proof.pairs import WaitingPair
from replicator.spark import directories
from replicator.spark.reconcile import opened_chunks, report
from tests.replicator.spark.reconcile.sample_outcomes import ALTERED, DAMAGED, SIGNED, outcome, partition

FORMATS = Path(__file__).parents[4] / "docs/reference/formats.md"
GONE = Incident("target_topic_deleted", "it is gone", topic="t", partition=7)
OPEN = partition(
    verdicts={"same": 9, "unproven": 1}, chunks_differing=1, reasons={"compaction emptied fewer offsets": 1}
)


def test_agreement_is_counts_and_records() -> None:
    assert partition().agrees
    assert not partition(source_counts_agree=False).agrees
    assert not partition(verdicts={"same": 9, "doubled": 1}, chunks_differing=1).agrees
    assert not partition(chunks_differing=1).agrees, "a difference that nobody can name is one"
    removed = partition(verdicts={"same": 9, "compacted_on_target": 1}, chunks_differing=1)
    assert (removed.agrees, removed.removed, removed.verdict) == (True, 1, "no_difference")
    assert (outcome(partition()).agrees, outcome(partition(), DAMAGED).agrees) == (True, False)


@pytest.mark.parametrize(
    ("found", "verdict", "said"),
    [
        (outcome(partition()), "agrees", "Both sides agree: 10 records."),
        (
            outcome(partition(lag=1)),
            "agrees",
            "Both sides agree up to the positions: 10 records. 1 source offset after the positions is not copied yet.",
        ),
        (
            outcome(partition(verdicts={"same": 1, "expired_on_target": 9_000})),
            "no_difference",
            "No difference was found in the 1 record that both sides still have; "
            "retention or compaction removed 9,000 records from one side.",
        ),
        (
            outcome(partition(verdicts={"same": 0, "expired_on_target": 10})),
            "no_difference",
            "No difference was found in what is left: no record is on both sides; "
            "retention or compaction removed 10 records from one side.",
        ),
        (outcome(partition(verdicts={"same": 0})), "no_difference", "There was no record to compare."),
        (
            outcome(partition(), waiting=(WaitingPair(Partition("t", 1), (0, 5)),)),
            "no_difference",
            "No difference was found in 10 records. The flow has not begun to copy 1 partition.",
        ),
        (
            outcome(partition(), waiting=(WaitingPair(Partition("t", 1), (5, 5)),)),
            "agrees",
            "Both sides agree: 10 records.",
        ),
        (
            outcome(OPEN, not_compared=(GONE,)),
            "unproven",
            "Not proven: 9 records are the same, but no evidence decides on 1 record and 1 partition that can't be "
            "compared.",
        ),
        (
            outcome(DAMAGED, OPEN),
            "differs",
            "The sides differ: 2 missing. No evidence decides on 1 record.",
        ),
        (
            outcome(partition(source_counts_agree=False)),
            "differs",
            "The sides differ: in 1 partition the position counts other records than there are.",
        ),
        (
            outcome(partition(verdicts={"same": 4, "differs": 6}), mode="quick"),
            "differs",
            "The sides differ: 6 in chunks that differ.",
        ),
        (
            outcome(partition(adopted=5), partition()),
            "agrees",
            "Both sides agree: 20 records. In 1 partition nothing was compared before the offset where operators had "
            "it go on.",
        ),
        (outcome(partition(), window=(0, None)), "agrees", "Both sides agree in the window of time: 10 records."),
    ],
)
def test_the_headline_is_true(found: object, verdict: str, said: str) -> None:
    assert (found.verdict, headline.headline(found)) == (verdict, said)  # type: ignore[attr-defined, arg-type]


@pytest.mark.tier("full")
def test_the_headline_says_agree_only_where_everything_was_compared() -> None:
    states = [
        partition(verdicts={"same": same, **({name: 1} if name else {})}, lag=lag)
        for same in (0, 9)
        for name in ("", *headline.MEANINGS)
        for lag in (0, 3)
    ]
    waits = (), (WaitingPair(Partition("t", 9), (0, 1)),)
    for one in states:
        for waiting in waits:
            for without in ((), (GONE,)):
                found = outcome(one, partition(), waiting=waiting, not_compared=without)
                whole = one.verdicts.keys() == {"same"} and not waiting and not without
                shown = page.html(found)
                title = re.search("<title>(.*)</title>", shown)
                assert title
                assert ("agree" in headline.headline(found)) == ("agree" in title[1]) == whole


def test_what_is_unproven_is_neither_agreement_nor_a_difference() -> None:
    for found in (outcome(OPEN), outcome(partition(), not_compared=(GONE,))):
        assert (found.agrees, found.differs, found.unproven) == (False, False, True)
    shown = page.html(outcome(OPEN, not_compared=(GONE,)))
    assert "1 unproven</span> compaction emptied fewer offsets." in shown
    assert "<code>target_topic_deleted</code>: it is gone" in shown
    assert GONE.advice.split("'")[0] in shown


class _Page(HTMLParser):
    """Collects what a page consists of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id" and value]


def test_the_page_stands_alone_and_obeys_nothing_of_a_record() -> None:
    text = page.html(outcome(DAMAGED, ALTERED))
    found = _Page(text)
    assert not found.tags.keys() & {"script", "link", "img", "iframe", "object", "base", "form"}
    links = [value for _, name, value in found.attributes if name in ("href", "src", "xlink:href", "action", "data")]
    assert links
    assert all(link.startswith("#") and link[1:] in found.ids for link in links)
    assert not [name for _, name, _ in found.attributes if name.startswith("on")]
    assert not re.search(r"@import|url\(|https?:", text)
    assert "&lt;script&gt;" in text
    assert [character for character in text if not character.isprintable() and character != "\n"] == []
    assert len(found.ids) == len(set(found.ids))
    assert len(text) < 40_000, "of a value of 5,000 bytes only an excerpt is shown"


def test_every_table_has_a_caption_and_says_what_its_headings_belong_to() -> None:
    found = _Page(page.html(outcome(DAMAGED, ALTERED, OPEN, not_compared=(GONE,))))
    assert found.tags["table"] == found.tags["caption"] >= 6
    scopes = [value for tag, name, value in found.attributes if (tag, name) == ("th", "scope")]
    assert len(scopes) == found.tags["th"]
    assert set(scopes) == {"col", "row"}


def test_long_names_are_broken_behind_dots() -> None:
    at = Partition("com.example.<b>.orders", 3)
    one = replace(DAMAGED, source=at, target=Partition("copy.orders", 3))
    gone = Incident("topic_gone", "it is gone", topic="com.example.orders", partition=3)
    text = page.html(outcome(one, not_compared=(gone,)))
    broken = "com.<wbr>example.<wbr>&lt;b&gt;.<wbr>orders[3]"
    assert f'<a href="#p0">{broken}</a>' in text
    assert f'<h2 id="p0">{broken} → copy.<wbr>orders[3]' in text
    assert '<th scope="row" class="name">com.<wbr>example.<wbr>orders[3]</th>' in text


def test_the_page_says_what_was_found() -> None:
    text = page.html(outcome(partition(), DAMAGED, ALTERED))
    for said in (
        "The sides differ: 2 missing, 1 altered.",
        "60 records of both sides read in 1 min 2 s",
        "a.example:9092</code>, <code>a2.example:9092",
        "<code>id-b</code>",
        "eos-replicate 1.2.3, Spark 4.5.6",
        '<a href="#p1">t[0]</a>',
        '<h2 id="p1">t[0] → a.<wbr>t[0]',
        f"{page.offsets((4, 5))}",
        "2023-11-14 22:13:20.123Z",
        "t[0]: a note.",
        'x="1" y="0" width="1" height="12"',
        "2 records missing</span> <b>repair</b>",
        "3 records expired on target</span> <b>ignore</b>",
    ):
        assert said in text, said
    assert "No partitions" not in text


def test_altered_fields_stand_side_by_side() -> None:
    text = page.html(outcome(ALTERED))
    assert "source offset 7, target offset 8: value, headers differ." in text
    assert "<code>… xxxxxxxxxxxxxxxxxxxxxxxx<mark>&lt;script&gt;alert(&#34;k&#34;)" in text
    assert "<mark>h=&#34;1&#34;</mark>" in text
    assert text.count(">null</span>") == 1, "no headers on the target"
    assert text.count("5,000 bytes") == 1
    assert "left out" not in text
    without = page.html(outcome(replace(ALTERED, ranges=()), values=False))
    assert "left out (--no-values)" in without


def test_a_large_result_stays_small_and_says_where_the_rest_is() -> None:
    ranges = [OffsetRange(verdict="missing", records=1, source_offsets=(n, n)) for n in range(20)]
    many = [
        replace(DAMAGED, source=Partition("t", n), ranges=tuple(ranges), ranges_found={"missing": 1_432})
        for n in range(150)
    ]
    same = [replace(partition(), source=Partition("t", n)) for n in range(150, 900)]
    text = page.html(outcome(*same, *many))
    assert "20 of 1,432 rows “missing” are shown." in text
    assert "topic = 't' AND partition = 0" in text
    assert "400 more partitions are not shown:\n400 “both sides agree”. report.json has all of them." in text
    assert "50 more partitions with findings are in report.json, and every finding in findings.parquet." in text
    assert text.index(">t[149]<") < text.index(">t[150]<"), "those that differ come first"
    assert "t[500]" not in text
    assert len(text) < 2_500_000


def test_each_table_that_may_scroll_says_so_on_a_narrow_page() -> None:
    text = page.html(outcome(DAMAGED))
    narrow = text[text.index("@media (max-width: 44rem)") : text.index("@media print")]
    assert '.wide caption::after { content: " The table scrolls sideways."; }' in narrow
    tables = text.split('<div class="wide"')[1:]
    assert len(tables) >= 3
    assert all("<caption>" in table[: table.index("<thead>")] for table in tables), "there is one to say it"


@pytest.mark.tier("extended")
def test_every_verdict_has_a_sign_a_colour_and_something_to_do() -> None:
    for name in headline.MEANINGS:
        found = outcome(partition(verdicts={"same": 1, name: 2}))
        (step,) = (step for step in next_steps.next_steps(found) if step.of == "records")
        assert (step.kind, step.count) == (name, 2)
        expected = "removed" if name in verdicts.REMOVED else "open" if name == "unproven" else "bad"
        assert (page.tone(name), step.action == "ignore") == (expected, name in verdicts.REMOVED)
        assert page.SYMBOLS[name]
        assert page.step_title(step) in page.html(found)


def test_what_a_repair_has_done_changes_what_is_to_be_done() -> None:
    def action(found: object) -> str:
        return next(step.action for step in next_steps.next_steps(found) if step.kind == "missing")  # type: ignore[arg-type]

    row = {"source": {"topic": "t", "partition": 0}, "missing": 2, "stays": {}, "refused": None, "incident": None}
    none = dict.fromkeys(("to_copy", "copied", "copied_before", "standing", "superseded"))
    plan = {"applied": False, "partitions": [{**row, **none, "to_copy": 1, "standing": 1}], "notes": []}
    done = {"applied": True, "partitions": [{**row, **none, "copied": 2}], "notes": []}
    some = {"applied": True, "partitions": [{**row, **none, "copied": 1}], "notes": []}
    rest = {"applied": True, "partitions": [{**row, **none, "standing": 1, "superseded": 1}], "notes": []}
    assert action(outcome(DAMAGED)) == action(outcome(DAMAGED, repair=plan)) == "repair"
    assert action(outcome(DAMAGED, repair=some)) == "repair"
    assert action(outcome(DAMAGED, repair=done)) == action(outcome(DAMAGED, repair=rest)) == "run again"
    assert headline.headline(outcome(DAMAGED, repair=some)).endswith(
        "Since then 1 of 2 missing records was copied again; 1 is still missing."
    )
    assert headline.headline(outcome(DAMAGED, repair=rest)).endswith(
        "Since then 0 of 2 missing records were copied again, 1 stood on the target by then, 1 is superseded by a "
        "later record of the key; none of them is missing any more."
    )
    planned = page.html(outcome(DAMAGED, repair=plan))
    assert "Nothing was changed: this is the plan." in planned
    assert "to be copied again</th>" in planned
    assert '<td class="n">2</td>\n<td class="n">1</td><td class="n">1</td>' in planned


def test_a_note_is_said_once() -> None:
    other = partition(source=Partition("t", 1), notes=("a note", "another"))
    assert outcome(DAMAGED, other).notes_said() == [("a note", []), ("another", [Partition("t", 1)])]


def test_the_chart_shows_the_gravest_verdict_of_each_place() -> None:
    marks = [(mark.bucket, mark.verdict) for mark in page.strip(DAMAGED)]
    assert marks == [(0, "expired_on_target"), (1, "missing")]


def test_json_is_for_machines() -> None:
    found = json.loads(
        json.dumps(as_json(outcome(DAMAGED, ALTERED, waiting=(WaitingPair(Partition("t", 9), (3, 4)),))))
    )
    assert (found["verdict"], found["agrees"], found["duration_ms"]) == ("differs", False, 62_500)
    assert found["headline"].startswith("The sides differ: 2 missing, 1 altered.")
    assert found["source"] == {"name": "a", "id": "id-a", "bootstrap_servers": ["a.example:9092", "a2.example:9092"]}
    assert found["totals"] == {"same": 17, "missing": 2, "expired_on_target": 3, "altered": 1}
    row, other = found["partitions"]
    assert row["source"] == {"topic": "t", "partition": 0}
    assert row["places"] == {"missing": {"1": 2}, "expired_on_target": {"0": 3}}
    assert [item["source_offsets"] for item in row["ranges"]] == [[4, 5]]
    assert row["ranges"][0]["key"].startswith("0x3c7363"), "it isn't printable"
    assert other["ranges"][0]["fields"] == ["value", "headers"]
    assert [pair["same"] for pair in other["ranges"][0]["fields_of_first"]] == [True, False, False, True]
    assert found["waiting"] == [{"topic": "t", "partition": 9, "source_offsets": [3, 4]}]


def keys(value: object) -> Iterator[str]:
    """Names of all keys in a JSON document, but for those that are data."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            if name not in ("totals", "verdicts", "unproven_reasons", "places", "ranges_found", "repair"):
                yield from keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item)


def test_the_keys_of_the_json_are_documented() -> None:
    found = as_json(
        outcome(DAMAGED, ALTERED, waiting=(WaitingPair(Partition("t", 9), (3, 4)),), not_compared=(GONE,), notes=("n",))
    )
    documented = FORMATS.read_text().partition("## report.json")[2].partition("\n## ")[0]
    assert sorted({name for name in keys(found) if f"`{name}`" not in documented}) == []


@pytest.mark.parametrize("hadoop", [pytest.param(it, marks=pytest.mark.tier("full")) for it in (False, True)])
def test_all_files_are_written_by_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hadoop: bool
) -> None:
    """Where a URI names the directory, through Hadoop's file systems."""
    to = f"{tmp_path}/out"
    if hadoop:
        there = directories.HadoopDirectory(spark, f"file://{to}")
        monkeypatch.setattr(directories, "directory", lambda given, spark: there)
    rows = [
        ("t", 0, *Finding("missing", 1, source_offset=n, source_rank=n, digest=n, reason=str(n))) for n in (3, 1, 2)
    ]
    report.write(outcome(DAMAGED), spark.createDataFrame(rows, opened_chunks.FOUND), to)
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")) == [
        "findings.parquet",
        "report.html",
        "report.json",
    ]
    assert parquet.read_table(tmp_path / "out/findings.parquet").column("source_offset").to_pylist() == [1, 2, 3]
    with pytest.raises(ConfigError, match="exists already"):
        report.write(outcome(DAMAGED), spark.createDataFrame([], opened_chunks.FOUND), to)


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def fail() -> None:
        with report_directory.complete(out) as part:
            (part / "half").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with report_directory.complete(out) as part:
        (part / "whole").touch()
        assert not out.exists()
    assert [path.name for path in out.iterdir()] == ["whole"]


def test_what_exists_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exists already"):
        report_directory.check_unused(tmp_path)
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="exists already"):
        report_directory.check_unused(tmp_path / "link")
    with pytest.raises(ConfigError, match="is not a directory"):
        report_directory.check_unused(tmp_path / "no" / "out")
    report_directory.check_unused(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_directory_that_cant_be_made_is_refused_before_anything_is_compared() -> None:
    with pytest.raises(ConfigError, match="/proc/out can't be made: No such file or directory"):
        report_directory.check_unused(Path("/proc/out"))  # nobody may write there, not even root


def test_what_was_left_out_by_decision_is_listed_and_no_difference() -> None:
    signed = outcome(partition(signed_gaps=(SIGNED,), notes=(SIGNED.said,)))
    assert (signed.verdict, signed.agrees, signed.differs, signed.unproven) == ("no_difference", True, False, False)
    assert headline.headline(signed) == (
        "No difference was found in 10 records. By decisions of operators 1 range of source offsets is left out."
    )
    (shown,) = as_json(signed)["partitions"]
    assert shown["signed_gaps"] == [asdict(SIGNED)]
    assert "as ann has decided" in shown["notes"][0]
