"""What a broker answers that is no response."""

from __future__ import annotations

from typing import Any, cast

import pytest

from replicator.model.errors import Unreachable
from replicator.wire.leaders import Leaders


class Garbled:
    """A connection whose broker answers without the header of a response."""

    where, received_bytes, throttled_s = "broker 1", 0, 0.0

    def send(self, _data: bytes, _limit_s: float) -> int:
        return 1

    def receive(self, _number: int, _limit_s: float) -> bytes:
        return b"\x01garbled"

    def close(self) -> None:
        """Nothing to let go of."""


@pytest.mark.tier("default")
def test_an_answer_without_its_header_is_one_that_could_not_be_had() -> None:
    leaders = Leaders(cast(Any, None), "test")
    with pytest.raises(Unreachable, match="broker 1: answers with a response without its header"):
        leaders._converse(cast(Any, Garbled()), ("host", 1), [(lambda _: b"asked", 0.0)], 0)
