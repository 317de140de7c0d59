"""What a lane does after each kind of error is one table; every error of the package has its row."""

from __future__ import annotations

import inspect

import pytest

from replicator.lane.driver import Next, after
from replicator.model import errors

EXPECTED: dict[type[errors.ReplicatorError], Next] = {
    errors.ConfigError: Next.LEAVE,
    errors.LocalFault: Next.LEAVE,
    errors.Unreachable: Next.RESTART,
    errors.NotAllowed: Next.RESTART,
    errors.Retriable: Next.RESTART,
    errors.TopicMissing: Next.RESTART,
    errors.Abortable: Next.RESTART,
    errors.UnknownOutcome: Next.RESTART,
    errors.Fenced: Next.EXAMINE,
    errors.TakenOver: Next.LEAVE,
    errors.ChangeRefused: Next.LEAVE,
    errors.FlowFrozen: Next.LEAVE,
    errors.HookFailed: Next.LEAVE,
    errors.SchemaRefused: Next.LEAVE,
    errors.SchemasInConflict: Next.LEAVE,
    errors.VerdictUnreadable: Next.LEAVE,
    errors.Fatal: Next.LEAVE,
    errors.Unsupported: Next.LEAVE,
}


@pytest.mark.parametrize("kind", EXPECTED)
def test_what_follows_each_error(kind: type[errors.ReplicatorError]) -> None:
    assert after(kind("x")) is EXPECTED[kind]


def test_an_incident_of_the_whole_flow_leaves() -> None:
    assert after(errors.Incident("name", "detail")) is Next.LEAVE


def test_no_error_class_is_without_a_decision() -> None:
    classes = {
        value
        for _, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, errors.ReplicatorError) and value is not errors.ReplicatorError
    }
    assert classes == {*EXPECTED, errors.Incident}
