"""The bytes shown in docs/log-format.md are those that the broker writes."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

from embedded_broker.state.producers import PartitionProducers
from embedded_broker.storage.log import checkpoint, index
from embedded_broker.storage.log.checkpoint import Checkpoint
from embedded_broker.storage.log.format import base_offset_of, encode_offset, segment_name
from kafka_records.batch import HEADER, stamp
from kafka_records.records import encode

TEXT = (Path(__file__).parents[4] / "docs/log-format.md").read_text()


def test_the_example_batch() -> None:
    block = TEXT.partition("```hexdump\n")[2].partition("```")[0]
    shown = bytes.fromhex("".join(line[10:] for line in block.splitlines()))
    made = encode([(b"k", b"hello")], 1_700_000_000_000)
    stamp(made, 42, 3)
    assert shown == made


def test_the_example_offset() -> None:
    assert f"```text\n{encode_offset(43).decode()}```" in TEXT


def _fields(text: str) -> tuple[str, list[int]]:
    """(format, positions) of a table of fields."""
    rows = re.findall(r"^(?:byte)? +(\d+)  (\w[\w -]*?\w) +([iu]\d+)", text, re.MULTILINE)
    codes = {"i64": "q", "i32": "i", "i16": "h", "i8": "b", "u32": "I"}
    return "".join(codes[kind] for _, _, kind in rows), [int(at) for at, _, _ in rows]


def test_the_tables_of_fields() -> None:
    batch, _, file = TEXT.partition("## Checkpoint and index files")
    for text, fixed, codes in ((batch, "", HEADER.format[1:]), (file, "4s", index.HEAD.format[3:])):
        positions = [struct.calcsize(f">{fixed}{codes[:number]}") for number in range(len(codes))]
        assert _fields(text) == (codes, positions)


def test_the_example_checkpoint() -> None:
    shown = json.loads(TEXT.partition("```json\n")[2].partition("```")[0])
    made = checkpoint.encode(Checkpoint(shown["offset"], shown["state"]))
    assert json.loads(made[9:]) == shown
    restored = PartitionProducers()
    restored.restore(shown["state"])
    again = json.loads(checkpoint.encode(Checkpoint(0, restored.snapshot()))[9:])["state"]
    assert again == {name: shown["state"][name] for name in ("producers", "aborted")}


def test_the_names_of_segments() -> None:
    names = re.findall(r"\d{20}\.log", TEXT)
    assert [segment_name(base_offset_of(name) or 0) for name in names] == names
    for other in ("log-start", "durable", "1.log", "0000000000000000000x.log", "00000000000000000001.log.tmp"):
        assert base_offset_of(other) is None
