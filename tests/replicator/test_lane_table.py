"""What a lane does after each kind of error is one table; every error of the package has its row."""

from __future__ import annotations

import inspect

import pytest

from replicator import errors
from replicator.lane import Next, after

EXPECTED = {
    errors.ConfigError: Next.LEAVE,
    errors.Unreachable: Next.RESTART,
    errors.NotAllowed: Next.LEAVE,
    errors.Retriable: Next.RESTART,
    errors.Abortable: Next.REWIND,
    errors.RecordRefused: Next.REWIND,
    errors.UnknownOutcome: Next.RESTART,
    errors.Fenced: Next.EXAMINE,
    errors.Superseded: Next.LEAVE,
    errors.Fatal: Next.LEAVE,
}


@pytest.mark.parametrize("kind", sorted(EXPECTED, key=lambda kind: kind.__name__))
def test_what_follows_each_error(kind: type[errors.ReplicatorError]) -> None:
    assert after(kind("x")) is EXPECTED[kind]


def test_an_incident_of_the_whole_lane_leaves() -> None:
    assert after(errors.Incident("name", "detail")) is Next.LEAVE


def test_no_error_class_is_without_a_decision() -> None:
    classes = {
        value
        for _, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, errors.ReplicatorError) and value is not errors.ReplicatorError
    }
    assert classes == {*EXPECTED, errors.Incident}
