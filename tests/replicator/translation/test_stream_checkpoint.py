"""A query's checkpoint, as Spark writes it, moved to other topics and offsets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replicator.model.errors import ConfigError
from replicator.model.partition import Partition
from replicator.offset_map.translate import TranslatedOffset
from replicator.translation.answers import OffsetAnswer, OffsetToTranslate
from replicator.translation.stream_checkpoint import read_checkpoint, write_checkpoint

SETTINGS = '{"batchWatermarkMs":0,"conf":{}}'


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Batches 7 to 9, of which the last one isn't done, of a query with two sources."""
    directory = tmp_path / "old"
    for name in ("offsets", "commits", "sources/0", "state/0/1"):
        (directory / name).mkdir(parents=True)
    (directory / "metadata").write_text('{"id":"it"}')
    (directory / "state/0/1/9.delta").write_bytes(b"\x00state")
    (directory / "sources/0/0").write_text("v1\n{}")
    for number in (7, 8, 9):
        kafka = json.dumps({"a": {"0": number * 10, "1": 5}, "b": {"0": number}})
        (directory / "offsets" / str(number)).write_text(f"v1\n{SETTINGS}\n{kafka}\n-")
        (directory / "offsets" / f".{number}.crc").write_bytes(b"crc")
        if number < 9:
            (directory / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return directory


def moved(one: OffsetToTranslate) -> OffsetAnswer:
    at = Partition(f"{one.at.topic}.copy", one.at.partition)
    return OffsetAnswer(one, at, TranslatedOffset(one.offset + 1000, 0))


def test_the_last_two_batches_are_moved_and_the_rest_stays(old: Path, tmp_path: Path) -> None:
    found = read_checkpoint(old)
    assert (sorted(found.batches), found.committed) == ([8, 9], {8})
    assert [(str(one.at), one.offset) for one in found.offsets] == [
        ("a[0]", 80),
        ("a[1]", 5),
        ("b[0]", 8),
        ("a[0]", 90),
        ("b[0]", 9),
    ]
    new = tmp_path / "new"
    write_checkpoint(found, new, {one: moved(one) for one in found.offsets})
    files = {str(path.relative_to(new)): path.read_text() for path in new.rglob("*") if path.is_file()}
    assert files == {
        "metadata": '{"id":"it"}',
        "state/0/1/9.delta": "\x00state",
        "commits/8": 'v1\n{"nextBatchWatermarkMs":0}',
        "offsets/8": f'v1\n{SETTINGS}\n{{"a.copy":{{"0":1080,"1":1005}},"b.copy":{{"0":1008}}}}\n-',
        "offsets/9": f'v1\n{SETTINGS}\n{{"a.copy":{{"0":1090,"1":1005}},"b.copy":{{"0":1009}}}}\n-',
    }
    assert {path.name for path in tmp_path.iterdir()} == {"old", "new"}


def test_what_is_there_is_never_overwritten(old: Path, tmp_path: Path) -> None:
    found = read_checkpoint(old)
    with pytest.raises(ConfigError, match="it is there already"):
        write_checkpoint(found, old, {one: moved(one) for one in found.offsets})
    missing = {one: moved(one) for one in found.offsets[:-1]}
    with pytest.raises(KeyError):
        write_checkpoint(found, tmp_path / "new", missing)
    assert {path.name for path in tmp_path.iterdir()} == {"old"}


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("offsets/9", f"v2\n{SETTINGS}\n-", "expected version v1"),
        ("offsets/9", "v1\n", "expected version v1"),
        ("offsets/9", f"v1\n{SETTINGS}\n5\n-", None),
    ],
)
def test_what_spark_does_not_write_is_refused(old: Path, path: str, text: str, said: str | None) -> None:
    (old / path).write_text(text)
    if said is None:  # the last batch of another kind of source; the one before has Kafka's
        assert len(read_checkpoint(old).offsets) == 3
        return
    with pytest.raises(ConfigError, match=said):
        read_checkpoint(old)


def test_a_directory_without_batches_and_a_query_without_kafka_are_refused(old: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no checkpoint of a query that has run a batch"):
        read_checkpoint(tmp_path)
    for number in (8, 9):
        (old / "offsets" / str(number)).write_text(f"v1\n{SETTINGS}\n7")
    with pytest.raises(ConfigError, match="reads no Kafka topic"):
        read_checkpoint(old)
