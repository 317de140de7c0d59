"""The topic in which the rows of a flow's verdicts are kept: makes sure of it, and reads the last verdict back."""

from __future__ import annotations

from typing import NamedTuple

from replicator.config import Flow
from replicator.failover.kept_rows import CHUNK_BYTES_MAX, read_back, topics_of_rows
from replicator.failover.scope import still_stands, topics_said
from replicator.failover.verdict import FailoverVerdict
from replicator.flow.deciding import make_own_topic
from replicator.flow.topics import ControlPlane
from replicator.kafka.admin import TopicSpec
from replicator.kafka.topic_reader import KeyAndValue
from replicator.model import names
from replicator.model.errors import ConfigError, Incident, VerdictUnreadable
from replicator.state.control_topic import Control
from replicator.state.envelope import NotOurs
from replicator.state.failover_note import FailoverNote, decode
from replicator.state.flow_state import CONTROL_LOST

TRIES = 3
"""The two topics are read one after the other, and meanwhile somebody may write another verdict."""


class KeptVerdict(NamedTuple):
    """The last verdict of a flow; `stands`: whether it is failed over still under that verdict's generation."""

    verdict: FailoverVerdict
    stands: bool


def cutovers_topic(flow: Flow) -> TopicSpec:
    """Return the topic, which keeps the last verdict of each generation that was failed over."""
    configs = {"cleanup.policy": "compact"}
    return TopicSpec(names.cutovers_topic(flow.name), 1, flow.topic_configs.replication_factor, configs)


def make_cutovers(flow: Flow, plane: ControlPlane) -> int:
    """Make sure of the topic; return how many bytes a record may have there. Raises what the target refuses."""
    spec = cutovers_topic(flow)
    make_own_topic(plane, spec)
    configs = plane.target.topics((spec.name,), configs=True)[spec.name].configs
    return int(configs.get("max.message.bytes", CHUNK_BYTES_MAX))


def note_in(control: Control) -> FailoverNote | None:
    """Return what the control topic says of the last failover, None where it says nothing. Raises
    VerdictUnreadable."""
    if control.failover_record is None:
        return None
    try:
        return decode(control.failover_record)
    except NotOurs as error:
        raise VerdictUnreadable(f"the summary of the last verdict: {error}") from error


def _records(flow: Flow, plane: ControlPlane) -> list[KeyAndValue]:
    topic = names.cutovers_topic(flow.name)
    return plane.target_reader.whole(topic, (0,)) if plane.target_reader.partition_count(topic) else []


def _without_note(flow: Flow, plane: ControlPlane) -> str:
    """Say what verdicts there were, by their rows alone: when, and what came of them, stood in the control topic. Empty
    where there are no rows."""
    found = topics_of_rows(_records(flow, plane))
    if not found:
        return ""
    of = "; ".join(f"generation {number} ({topics_said(topics)})" for number, topics in found.items())
    return (
        f"{names.cutovers_topic(flow.name)} has rows of what was failed over by {of}; whether it was undone isn't known"
    )


def last_verdict(flow: Flow, plane: ControlPlane) -> KeptVerdict:
    """Read the last verdict, and check its digest.

    Raises ConfigError where there is none; VerdictUnreadable, also where rows alone are left of it; Unreachable,
    NotAllowed, Retriable, Incident.
    """
    error: VerdictUnreadable | None = None
    for _ in range(TRIES):
        try:
            control = plane.state.control_unless_new()
        except Incident as lost:
            if lost.name != CONTROL_LOST:
                raise
            why = f"{lost.detail}. {_without_note(flow, plane) or 'No row of a verdict is kept'}"
            raise Incident(lost.name, why, topic=lost.topic, partition=lost.partition) from lost
        note = None if control is None else note_in(control)
        if control is None or note is None:
            if left := _without_note(flow, plane):
                raise VerdictUnreadable(f"flow {flow.name}: the control topic has no note of a failover. {left}")
            raise ConfigError(f"flow {flow.name} has no verdict: it was never failed over")
        records = _records(flow, plane)
        try:
            verdict = read_back(flow.name, note, records)
        except VerdictUnreadable as unreadable:
            error = unreadable
            continue
        return KeptVerdict(verdict, still_stands(note, control))
    assert error is not None, "each try that doesn't return has one"
    raise error
