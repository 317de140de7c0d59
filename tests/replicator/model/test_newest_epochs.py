"""Leader epochs as brokers tell them: what is older isn't believed, unless it is another topic."""

from __future__ import annotations

from replicator.model.newest_epochs import NewestEpochs
from replicator.model.partition import Partition

AT, OTHER = Partition("t", 0), Partition("u", 0)
FIRST, SECOND = b"0123456789abcdef", b"fedcba9876543210"


def test_an_older_epoch_is_refused_and_the_same_is_not() -> None:
    epochs = NewestEpochs()
    epochs.topic("t", FIRST)
    assert [epochs.take(AT, epoch) for epoch in (5, 5, 7, 6, -1, 7)] == [True, True, True, False, True, True]
    assert (epochs.newest(AT), epochs.newest(OTHER)) == (7, -1)
    assert epochs.take(OTHER, 0)


def test_the_epochs_of_a_topic_that_was_created_again_begin_anew() -> None:
    epochs = NewestEpochs()
    epochs.topic("t", FIRST)
    assert epochs.take(AT, 7)
    epochs.topic("t", bytes(16))  # a broker that tells no id
    assert not epochs.take(AT, 0)
    epochs.topic("t", SECOND)
    assert epochs.take(AT, 0)
