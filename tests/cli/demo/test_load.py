"""The load is as odd as it claims to be, and every record can be told from every other."""

from __future__ import annotations

import random

from cli.demo.load import make
from cli.demo.reading import name


def test_every_kind_of_record_is_there_and_carries_its_number() -> None:
    made = [make(number, random.Random(number)) for number in range(64)]
    assert any(odd.key is None for odd in made)
    assert any(odd.key == b"" for odd in made)
    assert any(odd.value is None for odd in made)
    assert any(odd.value == b"" for odd in made)
    assert any(odd.key is None and odd.value is None for odd in made)
    assert any(len({key for key, _ in odd.headers}) < len(odd.headers) for odd in made)
    assert any(value is None for odd in made for _, value in odd.headers)
    assert any(value == b"" for odd in made for _, value in odd.headers)
    names = [
        name(odd.key, odd.value, tuple((k, v if isinstance(v, bytes) else None) for k, v in odd.headers))
        for odd in made
    ]
    assert names == [b"#%09d" % number for number in range(64)]
