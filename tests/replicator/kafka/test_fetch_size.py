"""How much is asked for at once: less after answers that don't arrive, and more again later."""

from __future__ import annotations

from replicator.kafka.fetch_size import GROW_AFTER_S, STEPS_MAX, FetchSize, FetchStep


class Time:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_each_failure_makes_it_less_down_to_a_bound() -> None:
    size = FetchSize(Time())
    divisors = []
    for _ in range(STEPS_MAX):
        divisors.append(size.step.divisor)
        assert size.failed(size.step)
    assert divisors == [1, 4, 16]
    assert (size.step.divisor, size.step.patience) == (64, 8)
    assert not size.failed(size.step), "there is no less: another reader would ask for the same"


def test_lanes_that_find_the_same_failure_make_it_less_once() -> None:
    size = FetchSize(Time())
    assert size.failed(FetchStep(0))
    assert size.failed(FetchStep(0)), "it is made anew, too"
    assert size.step == FetchStep(1)


def test_after_a_while_without_a_failure_it_grows_and_what_fails_then_is_tried_later() -> None:
    now_s = Time()
    size = FetchSize(now_s)
    assert not size.grows(size.step)
    size.failed(size.step)
    now_s.now_s += 2 * GROW_AFTER_S - 1
    assert not size.grows(FetchStep(1))
    now_s.now_s += 1
    assert size.grows(FetchStep(1))
    assert size.grows(FetchStep(1)), "the reader of another lane"
    assert not size.grows(FetchStep(0))
    assert size.step == FetchStep(0)
    size.failed(FetchStep(0))
    now_s.now_s += 2 * GROW_AFTER_S
    assert not size.grows(FetchStep(1))
    now_s.now_s += 2 * GROW_AFTER_S
    assert size.grows(FetchStep(1))
