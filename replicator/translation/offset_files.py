"""Files of offsets, as Kafka's own tools read and write them. Pure.

CSV as `kafka-consumer-groups --reset-offsets --export` prints it and `--from-file` takes it: `topic,partition,offset`.
JSON as `kafka-delete-records --offset-json-file` takes it, `{"partitions": [{"topic", "partition", "offset"}, …]}`, or
the list alone.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from replicator.model.errors import ConfigError
from replicator.model.partition import Partition
from replicator.translation.answers import OffsetAnswer, OffsetToTranslate

_HEADING = ["topic", "partition", "offset"]


def read_offsets(name: str, text: str) -> list[OffsetToTranslate]:
    """Read offsets from a file's text: JSON if it begins as JSON does, else CSV. Raises ConfigError with the place."""
    found = list(_json(name, text) if text.lstrip()[:1] in ("{", "[") else _csv(name, text))
    if not found:
        raise ConfigError(f"{name}: there are no offsets in it")
    return found


def as_csv(answers: Iterable[OffsetAnswer]) -> str:
    """Write where consumers go on, for `kafka-consumer-groups --reset-offsets --from-file`; without those that have no
    offset."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows((it.at.topic, it.at.partition, it.offset) for it in answers if it.offset is not None)
    return out.getvalue()


def _csv(name: str, text: str) -> Iterator[OffsetToTranslate]:
    reader = csv.reader(io.StringIO(text))
    try:
        for row in reader:
            place = f"{name}, line {reader.line_num}"
            cells = [cell.strip() for cell in row]
            if not any(cells) or (reader.line_num == 1 and [cell.lower() for cell in cells] == _HEADING):
                continue
            if len(cells) != 3:
                raise ConfigError(f"{place}: expected topic,partition,offset")
            yield _offset(place, *cells)
    except csv.Error as error:
        raise ConfigError(f"{name}, line {reader.line_num}: {error}") from error


def _json(name: str, text: str) -> Iterator[OffsetToTranslate]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name}: no JSON: {error}") from error
    entries = content.get("partitions") if isinstance(content, dict) else content
    if not isinstance(entries, list):
        raise ConfigError(f'{name}: expected a list of offsets, or {{"partitions": [...]}}')
    for number, entry in enumerate(entries, 1):
        place = f"{name}, entry {number}"
        if not isinstance(entry, dict) or not entry.keys() >= set(_HEADING):
            raise ConfigError(f"{place}: expected topic, partition and offset")
        yield _offset(place, *(entry[key] for key in _HEADING))


def _offset(place: str, topic: Any, partition: Any, offset: Any) -> OffsetToTranslate:
    if not isinstance(topic, str) or not topic:
        raise ConfigError(f"{place}: no topic")
    return OffsetToTranslate(Partition(topic, _number(place, "partition", partition)), _number(place, "offset", offset))


def _number(place: str, what: str, value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ConfigError(f"{place}: {what} {value!r}: expected a number from 0")
    return value
