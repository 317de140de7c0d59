"""The writer of transactions: what an answer has failed takes no more batches, and says why."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import Mock

import pytest

from replicator.model.errors import Abortable
from replicator.model.partition import Partition
from replicator.planes.batches.decoding import WritableBatch
from replicator.planes.batches.phases import TxnPhase
from replicator.planes.batches.session import TxnFailure
from replicator.planes.batches_io.outcomes import Outcomes
from replicator.planes.batches_io.writer import TransactionWriter, WriterLimits

pytestmark = pytest.mark.tier("unit")


def test_a_batch_behind_one_that_was_refused_meanwhile_is_told_the_refusal() -> None:
    """Answers are heard while a backlog is taken: the transaction may fail between two batches of one poll."""
    refused, told = cast(TxnFailure, object()), list[object]()

    class Fake:
        def of(self, failures: list[object]) -> Abortable:
            told.extend(failures)
            return Abortable("refused")

    nobody = cast(Any, None)
    limits = WriterLimits(1.0, 1.0, 1.0)
    writer = TransactionWriter(
        "b", limits, nobody, nobody, cast(Outcomes, Fake()), cast(Any, Mock()), nobody, lambda _: None
    )
    writer._session.phase = TxnPhase.FAILED
    writer._session.failures.append(refused)
    with pytest.raises(Abortable, match="refused"):
        writer.write(Partition("t", 0), cast(WritableBatch, object()))
    assert told == [refused]
