"""A partition in which a pairing was a guess is not repaired, and the command says so; the others are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness import clients
from integration_tests.spark.conftest import Command, Plant
from integration_tests.spark.planted import EPOCH_MS, Content, Planted
from replicator.spark.reconcile.missing import REFUSED
from replicator.spark.reconcile.summed_up.partitions import PAIRED_BY_GUESS

pytestmark = [pytest.mark.tier("long"), pytest.mark.timeout(600)]

DIFFERS = 1


def values(planted: Planted, partition: int) -> list[bytes | None]:
    return [message.value() for message in clients.read(planted.target, planted.copy, partition)]


def rows(said: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(said[said.index("{\n") : said.rindex("}") + 1])["repair"]["partitions"]
    return found


def test_what_was_paired_by_a_guess_is_not_copied(plant: Plant, command: Command, tmp_path: Path) -> None:
    """The first of two records that share key and time may be lost, and the second one have moved to its place and been
    altered; or the first one was altered, and the second one is lost."""
    records = [Content(b"k%d" % n, b"v%d" % n, EPOCH_MS + n) for n in range(300)]
    records[100] = records[100]._replace(key=b"both", timestamp_ms=EPOCH_MS)
    records[200] = records[200]._replace(key=b"both", timestamp_ms=EPOCH_MS)
    guessed = [*records[:100], records[100]._replace(value=b"altered"), *records[101:200], *records[201:]]
    certain = [*records[:50], *records[53:]]
    planted = plant([records, records], [guessed, certain])
    planted.commit([300] * 2, [len(guessed), len(certain)])

    code, said = command(planted, "--repair", "plan", "--json")
    assert code == DIFFERS, said
    first, second = rows(said)
    assert (first["missing"], first["refused"], first["to_copy"]) == (1, REFUSED, None)
    assert (second["missing"], second["refused"], second["to_copy"]) == (3, None, 3)

    code, said = command(planted, "--repair", "apply", "--out", str(tmp_path / "out"))
    assert code == DIFFERS, said
    told = " ".join(said.split())
    assert f"repair: {planted.topic}[0]: {REFUSED}" in told
    assert f"note on {planted.topic}[0]: {PAIRED_BY_GUESS}" in told
    assert f"repair: {planted.topic}[1]: 3 records missing, 3 copied again (source offsets 50-52)" in told
    assert values(planted, 0) == [record.value for record in guessed], "nothing was written there"
    assert values(planted, 1) == [record.value for record in [*certain, *records[50:53]]]
    report = json.loads((tmp_path / "out" / "report.json").read_text())["repair"]
    assert [(row["refused"], row["copied"]) for row in report["partitions"]] == [(REFUSED, None), (None, 3)]

    code, said = command(planted, "--repair", "apply", "--json")
    assert (code, rows(said)[0]["refused"]) == (DIFFERS, REFUSED), said
    assert values(planted, 0) == [record.value for record in guessed]
