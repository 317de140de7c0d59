"""Calls side by side: none waits for another, and all results come in order."""

from __future__ import annotations

import threading

import pytest

from cli.options import ask_each
from cli.side_by_side import THREADS_MAX, side_by_side
from replicator.config import Flow, load_text
from replicator.model.errors import Unreachable

FILE = """
clusters: {a: {properties: {bootstrap.servers: "a:1"}}, b: {properties: {bootstrap.servers: "b:1"}}}
flows:
  one: {source: a, target: b, topics: [t1]}
  two: {source: a, target: b, topics: [t2]}
  six: {source: a, target: b, topics: [t3]}
"""
FLOWS = list(load_text(FILE, env={}).flows.values())


def test_none_waits_for_another() -> None:
    together = threading.Barrier(THREADS_MAX, timeout=30)

    def call(number: int) -> int:
        together.wait()
        return number * number

    assert side_by_side(range(THREADS_MAX), call) == [number * number for number in range(THREADS_MAX)]
    assert side_by_side([], call) == []


def test_there_may_be_more_than_threads() -> None:
    assert side_by_side(range(3 * THREADS_MAX), str) == [str(number) for number in range(3 * THREADS_MAX)]


def test_one_flow_that_is_not_answered_for_hides_no_other_and_a_bug_is_raised() -> None:
    def ask(flow: Flow) -> str:
        if flow.name == "two":
            raise Unreachable("away")
        return flow.name

    found, failed = ask_each(FLOWS, ask)
    assert (list(found), [str(error) for error in failed.values()]) == (["one", "six"], ["away"])

    def bug(flow: Flow) -> str:
        raise ZeroDivisionError(flow.name)

    with pytest.raises(ZeroDivisionError, match="one"):
        ask_each(FLOWS, bug)
