"""Writes what an operator pauses, resumes or limits of a flow into its control topic. Called by `pause`, `resume` and
`rate`.

It is decided by what the topic says once the control id is initialised, as decisions about incidents are: of two
operators at once one writes, and the other goes on from what was written. The source is asked for nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from replicator.config import Flow, routing
from replicator.config.messages import suggestion
from replicator.flow.deciding import written
from replicator.flow.never_run import check_new
from replicator.flow.topics import ControlPlane
from replicator.model.errors import ConfigError
from replicator.state.control_topic import Control
from replicator.state.run_settings import TOPICS_MAX, RunSettings

Change = Callable[[RunSettings], RunSettings]


@dataclass(frozen=True, slots=True)
class ChangedSettings:
    """What a flow's settings were and are. The same where there was nothing to change: then nothing was written."""

    before: RunSettings
    after: RunSettings


def settings_of(flow: Flow, connect_timeout_ms: int) -> RunSettings:
    """Read a flow's settings. Raises Unreachable, NotAllowed, Retriable, Incident."""
    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as plane:
        plane.target.connect()
        control = plane.state.control_if_any()
        return RunSettings() if control is None else control.settings


def change_settings(flow: Flow, topics: Collection[str], change: Change, connect_timeout_ms: int) -> ChangedSettings:
    """Change a flow's settings, once, however often that takes.

    Args:
        topics: source topics that are named; each must be one that the flow selects, or has copied, or has a setting.
        change: makes the new settings of those that are there.

    Raises ConfigError for an unknown topic, or where the flow has never run; Incident of the flow's own topics;
    Unreachable, NotAllowed, Retriable, Fenced.
    """
    found: list[ChangedSettings] = []
    token = uuid.uuid4().hex

    def take(control: Control) -> Sequence[RunSettings]:
        before = control.settings
        if found and before.token == token:
            return ()  # an earlier try has written it, and didn't learn that
        after = replace(change(before), token=token)
        if len(after.topics) > TOPICS_MAX:
            raise ConfigError(f"flow {flow.name}: more than {TOPICS_MAX} topics with a setting of their own")
        if after.same(before):
            found.append(ChangedSettings(before, before))
            return ()
        found.append(ChangedSettings(before, after))
        return (after,)

    with ControlPlane(flow, connect_timeout_ms=connect_timeout_ms) as plane:
        plane.target.connect()
        control = plane.state.control_unless_new()
        if control is None:
            check_new(flow)
            raise ConfigError(f"flow {flow.name} has never run on {flow.target.name}: run it, or name another flow")
        check_topics(flow, topics, plane, control)
        written(flow, plane, take)
        return found[-1]


def check_topics(flow: Flow, topics: Collection[str], plane: ControlPlane, control: Control) -> None:
    """Raise ConfigError for a topic that isn't the flow's, with the nearest one that is."""
    unknown = [topic for topic in topics if not routing.selects(flow, topic) and topic not in control.settings.topics]
    if not unknown and not topics:
        return
    claims = plane.state.claims_if_any()
    copied = {claim.source.topic for claim in claims.claims.values()} if claims is not None else set()
    known = copied | set(routing.literals(flow)) | control.settings.topics
    for topic in topics:
        if topic in known or (topic not in unknown and not known):
            continue
        near = suggestion(topic, sorted(known))
        if topic in unknown or near:
            raise ConfigError(f"flow {flow.name} has no topic {topic}{near}")
