"""The bytes shown in docs/log-format.md are those that the broker writes."""

from __future__ import annotations

import re
from pathlib import Path

from embedded_broker.log.format import base_offset_of, encode_offset, segment_name
from embedded_broker.wire.batch import HEADER, stamp
from embedded_broker.wire.records import encode

TEXT = (Path(__file__).parents[3] / "docs/log-format.md").read_text()


def test_the_example_batch() -> None:
    block = TEXT.partition("```hexdump\n")[2].partition("```")[0]
    shown = bytes.fromhex("".join(line[10:] for line in block.splitlines()))
    made = encode([(b"k", b"hello")], 1_700_000_000_000)
    stamp(made, 42, 3)
    assert shown == made


def test_the_example_offset() -> None:
    assert f"```text\n{encode_offset(43).decode()}```" in TEXT


def test_the_table_of_fields() -> None:
    rows = re.findall(r"^(?:byte)? +(\d+)  (\w[\w -]*?\w) +([iu]\d+)", TEXT, re.MULTILINE)
    codes = {"i64": "q", "i32": "i", "i16": "h", "i8": "b", "u32": "I"}
    assert ">" + "".join(codes[kind] for _, _, kind in rows) == HEADER.format
    positions = [0]
    for _, _, kind in rows:
        positions.append(positions[-1] + int(kind[1:]) // 8)
    assert [int(at) for at, _, _ in rows] == positions[:-1]
    assert positions[-1] == HEADER.size


def test_the_names_of_segments() -> None:
    names = re.findall(r"\d{20}\.log", TEXT)
    assert [segment_name(base_offset_of(name) or 0) for name in names] == names
    for other in ("log-start", "durable", "1.log", "0000000000000000000x.log", "00000000000000000001.log.tmp"):
        assert base_offset_of(other) is None
