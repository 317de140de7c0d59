"""Checkpoints of Structured Streaming queries that read Kafka, moved to the other side of a flow.

The layout is Spark's (org.apache.spark.sql.execution.streaming: HDFSMetadataLog, OffsetSeqLog, CommitLog):

    metadata    the query's id
    offsets/N   a version, the batch's settings, and a line for each source: the end of batch N as JSON, or `-`
    commits/N   batch N is done
    state/      of the query's aggregations, by batch
    sources/    initial offsets, which a query that has run a batch doesn't read again

A batch that has offsets and no commit is run again, from the end of the batch before to its own end. So the last two
are translated, their numbers are kept, and what is run again are the same records. State is copied as it is. `sources`
and older batches are left out.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from replicator.model.errors import ConfigError
from replicator.model.partition import Partition
from replicator.translation.answers import OffsetAnswer, OffsetToTranslate

VERSION, WITHOUT_OFFSET = "v1", "-"
BATCHES = 2
_REWRITTEN = ("offsets", "commits", "sources")


@dataclass(frozen=True, slots=True)
class StreamCheckpoint:
    """A query's checkpoint. `batches`: the lines of the newest entries in `offsets`, by batch; `committed`: those that
    are done."""

    directory: Path
    batches: dict[int, list[str]]
    committed: frozenset[int]

    @property
    def offsets(self) -> list[OffsetToTranslate]:
        """All offsets of Kafka topics in it, each once."""
        return list(dict.fromkeys(one for lines in self.batches.values() for line in lines[2:] for one in _kafka(line)))


def read_checkpoint(directory: Path) -> StreamCheckpoint:
    """Read the newest batches of a checkpoint on a local file system. Raises ConfigError where it is none, or another
    version."""
    numbers = _numbers(directory / "offsets")
    if not numbers:
        raise ConfigError(f"{directory}: no checkpoint of a query that has run a batch: it has no offsets/0")
    batches = {}
    for number in sorted(numbers)[-BATCHES:]:
        path = directory / "offsets" / str(number)
        lines = path.read_text().splitlines()
        if len(lines) < 3 or lines[0] != VERSION:
            raise ConfigError(f"{path}: expected version {VERSION}, settings, and a line for each source")
        batches[number] = lines
    found = StreamCheckpoint(directory, batches, frozenset(batches.keys() & _numbers(directory / "commits")))
    if not found.offsets:
        raise ConfigError(f"{directory}: the query reads no Kafka topic")
    return found


def write_checkpoint(found: StreamCheckpoint, out: Path, answers: Mapping[OffsetToTranslate, OffsetAnswer]) -> None:
    """Write the checkpoint for the other side as a new directory, whole or not at all.

    Args:
        answers: of all of its offsets; each must have one.

    Raises:
        ConfigError: `out` is there already.
        OSError: it can't be written.
    """
    if out.exists():
        raise ConfigError(f"{out}: it is there already; a checkpoint is written as a new directory")
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        shutil.copytree(found.directory, draft, ignore=_left_out(found.directory))
        for name in ("offsets", "commits"):
            (draft / name).mkdir()
        for number, lines in found.batches.items():
            moved = [*lines[:2], *(_moved(line, answers) for line in lines[2:])]
            (draft / "offsets" / str(number)).write_text("\n".join(moved))
            if number in found.committed:
                shutil.copy(found.directory / "commits" / str(number), draft / "commits" / str(number))
        draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _left_out(directory: Path) -> Callable[[str, list[str]], list[str]]:
    """Return a function that says what `copytree` doesn't copy: these names at the top."""

    def ignored(where: str, names: list[str]) -> list[str]:
        return [name for name in names if name in _REWRITTEN] if Path(where) == directory else []

    return ignored


def _numbers(directory: Path) -> set[int]:
    return {int(path.name) for path in directory.glob("[0-9]*") if path.name.isdigit()}


def _kafka(line: str) -> Iterator[OffsetToTranslate]:
    """Yield the offsets of a line, if it is that of a Kafka source: {"topic": {"partition": offset}}."""
    if line == WITHOUT_OFFSET:
        return
    try:
        topics = json.loads(line)
    except ValueError:
        return
    if not isinstance(topics, dict) or not all(isinstance(of_topic, dict) for of_topic in topics.values()):
        return
    for topic, partitions in topics.items():
        for number, offset in partitions.items():
            if not number.isdigit() or not isinstance(offset, int):
                return
            yield OffsetToTranslate(Partition(topic, int(number)), offset)


def _moved(line: str, answers: Mapping[OffsetToTranslate, OffsetAnswer]) -> str:
    asked = list(_kafka(line))
    if not asked:
        return line
    topics: dict[str, dict[str, int | None]] = {}
    for one in asked:
        answer = answers[one]
        topics.setdefault(answer.at.topic, {})[str(answer.at.partition)] = answer.offset
    return json.dumps(topics, separators=(",", ":"))
