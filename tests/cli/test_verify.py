"""`verify` on the command line: what is wrong is said first; what was found, for people and for machines."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from cli import main
from cli.commands.verify import share, show
from replicator.model.errors import ConfigError, Incident
from replicator.model.partition import Partition
from replicator.proof.verified import UNSEEN, Verified, VerifiedPartition
from tests.cli.test_reconcile_local import flow_file

pytestmark = pytest.mark.tier("default")
AT, COPY = Partition("t", 0), Partition("t.copy", 0)


def of(**fields: object) -> VerifiedPartition:
    known: dict[str, object] = {"source": AT, "target": COPY, "source_span": (0, 9), "copies": 5, "standing": 5}
    return VerifiedPartition(**{**known, **fields})  # type: ignore[arg-type]


def all_of(*partitions: VerifiedPartition, **fields: object) -> Verified:
    return Verified(flow="f", snapshot_ms=0, finished_ms=9, partitions=partitions, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sample", "0"], "--sample 0: expected a share above 0"),
        (["--sample", "101%"], "--sample 101%: expected"),
        (["--sample", "some"], "--sample some: expected"),
        (["--since", "2026-01-01T00:00:00"], "--since 2026-01-01T00:00:00: the time needs a zone"),
        (["--flow", "g"], "no flow g; it has f"),
    ],
)
def test_what_is_wrong_is_said(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke(["verify", "-c", str(flow_file(tmp_path)), *options]) == 2
    assert said in capsys.readouterr().err


def test_a_flow_without_a_map_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["verify", "-c", str(flow_file(tmp_path, "at_least_once"))]) == 2
    assert "no offset map" in capsys.readouterr().err


def test_shares_are_percents_or_numbers() -> None:
    assert share("1%") == share("0.01") == 0.01
    assert share("100%") == share("1") == 1.0
    with pytest.raises(ConfigError):
        share("nan")


@pytest.mark.parametrize(
    ("partition", "verdict"),
    [
        (of(), "stands"),
        (of(empty_offsets=1, empty=((3, 4),)), "differs"),
        (of(foreign_records=1, foreign=((3, 4),)), "differs"),
        (of(contradictions=("the count",)), "differs"),
        (of(gaps=("it begins later",)), "unproven"),
        (of(emptied=2), "unproven"),
        (of(voided=2), "unproven"),
        (of(uncovered=2), "unproven"),
        (of(source_span=None, copies=0, standing=0, gaps=("nothing of it",)), "unproven"),
        (of(gaps=("it begins later",), empty_offsets=1, empty=((3, 4),)), "differs"),
        (of(expired=3, restarts=1), "stands"),
    ],
)
def test_verdicts_say_no_more_than_was_seen(partition: VerifiedPartition, verdict: str) -> None:
    found = all_of(partition)
    assert partition.verdict == found.verdict == verdict
    assert bool(partition.said()) is (verdict != "stands" or bool(partition.restarts))
    assert ("A committed record stands at each place" in found.headline) is (verdict == "stands")
    assert json.loads(json.dumps(found.as_json()))["partitions"][0]["verdict"] == verdict


def test_nothing_looked_at_is_no_proof() -> None:
    assert all_of(of(copies=0, standing=0)).verdict == "stands"  # there was nothing to copy
    assert all_of(of(copies=0, standing=0), sample=0.01).verdict == "unproven"
    assert all_of(of(copies=0, standing=0), since_ms=5).verdict == "unproven"
    assert all_of().verdict == "unproven"
    gone = Incident("topic_gone", "it is gone", topic="t", partition=1)
    assert all_of(of(), not_compared=(gone,)).verdict == "unproven"


def test_a_sample_claims_nothing_of_what_stands_between() -> None:
    assert "no other record" in all_of(of()).headline
    assert "no other record" not in all_of(of(), sample=0.5).headline
    assert "of a sample of 50 %" in all_of(of(), sample=0.5).headline


def test_all_fits_a_terminal_of_80_columns() -> None:
    said = io.StringIO()
    name = "payments.card-transactions." + "x" * 40
    it = of(
        target=Partition(name, 3), copies=9_999_999_999, standing=9_999_999_999, empty_offsets=2, empty=((3, 4), (6, 7))
    )
    notes = ("a block of the map can't be read, and what it tells of was looked for in the section that follows it",)
    show(Console(width=80, file=said, force_terminal=True, color_system=None), all_of(it, notes=notes))
    lines = said.getvalue().splitlines()
    assert [line for line in lines if len(line) > 80 and name not in line] == []
    whole = " ".join(" ".join(lines).split())
    assert f"{name}[3]: 2 target offsets of copies without a record: 3, 6" in whole
    assert notes[0] in whole
    assert UNSEEN in whole


def test_people_are_told_what_was_not_looked_at() -> None:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    show(console, all_of(of(empty_offsets=2, empty=((3, 4), (6, 7))), notes=("a block can't be read",)))
    said = console.export_text()
    assert "2 target offsets of copies without a record: 3, 6" in said
    assert "note: a block can't be read" in said
    assert UNSEEN in said
    assert "The target isn't what the map says" in said
