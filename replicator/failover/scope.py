"""What is failed over: a flow as a whole, or some of its topics. Pure, but for what is asked of a changer.

A flow as a whole has a generation of a kind of its own. Topics are left out by each generation from the one on that
failed them over, whatever runs it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from replicator.config import Flow
from replicator.config.messages import suggestion
from replicator.model.errors import ConfigError, FlowFrozen
from replicator.state.claims import Claims
from replicator.state.control import Changer, CountLanes, MayReplace, Proposal, Propose, giving_back, handing_back
from replicator.state.control_topic import Control
from replicator.state.failover_note import FailoverNote
from replicator.state.generation import Generation, Kind, Phase

TOPICS_SAID = 10


class FailedOver(NamedTuple):
    """That it is failed over: since which generation, and by which process. `under`: the generation that is open, or to
    be. `who`: who has decided it, for people."""

    number: int
    by: str
    under: Generation
    who: str


@dataclass(frozen=True, slots=True)
class WholeFlow:
    """All topics, also those that are to come. Methods as of `SomeTopics`."""

    flow: Flow
    topics: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """See `SomeTopics`."""
        return f"flow {self.flow.name} is"

    def check(self, control: Control, claims: Claims) -> None:
        """See `SomeTopics`."""

    def stands(self, control: Control) -> FailedOver | None:
        """See `SomeTopics`."""
        found = control.frozen
        return None if found is None else FailedOver(found.number, found.by, found, found.who)

    def left(self, control: Control) -> FailedOver | None:
        """See `SomeTopics`."""
        open_ = [it for it in control.generations.values() if it.kind is Kind.FROZEN and it.phase is Phase.OPEN]
        found = control.frozen or (open_[-1] if control.open is None and open_ else None)
        if found is None and control.failed_over:
            raise ConfigError(
                f"flow {self.flow.name} isn't failed over as a whole, but {topics_said(control.failed_over)}: "
                f"--undo --topics {','.join(sorted(control.failed_over))}"
            )
        return None if found is None else FailedOver(found.number, found.by, found, found.who)

    def freeze(self, changer: Changer, count_lanes: CountLanes, may_replace: MayReplace) -> Generation:
        """See `SomeTopics`."""
        return changer.freeze(may_replace)

    def back(self, count_lanes: CountLanes, since: int) -> Propose:
        """Propose to hand the flow back; topics that were failed over by themselves before stay so."""
        return handing_back(count_lanes)


@dataclass(frozen=True, slots=True)
class SomeTopics:
    """Some source topics of a flow whose others go on."""

    flow: Flow
    topics: tuple[str, ...]

    @property
    def said(self) -> str:
        """What it is, in words, with the beginning of a verb."""
        return f"{topics_said(self.topics)} of flow {self.flow.name} {'is' if len(self.topics) == 1 else 'are'}"

    def check(self, control: Control, claims: Claims) -> None:
        """Raise ConfigError, FlowFrozen where it can't be failed over, or given back, whatever else is so."""
        check_known(self.flow, self.topics, control, claims)
        if (found := control.frozen) is not None:
            raise FlowFrozen(
                f"flow {self.flow.name} is failed over as a whole (generation {found.number}, by {found.who}): its "
                "topics can't be failed over, or given back, by themselves until that is undone"
            )

    def stands(self, control: Control) -> FailedOver | None:
        """Say since when it is failed over, in a generation that is open or about to be; None: it isn't."""
        found = control.open or control.preparing
        if found is None or not found.failed_over.keys() >= set(self.topics):
            return None
        return self._since(control, found, self.topics)

    def left(self, control: Control) -> FailedOver | None:
        """Return the same as `stands`, also where whoever undid it died."""
        for _, found in sorted(control.generations.items(), reverse=True):
            topics = found.failed_over.keys() & set(self.topics)
            if topics and (found.phase is Phase.OPEN or found == control.preparing):
                return self._since(control, found, topics)
        return None

    @staticmethod
    def _since(control: Control, found: Generation, topics: Collection[str]) -> FailedOver:
        number = max(found.failed_over[topic] for topic in topics)
        begun = control.generations.get(number, found)
        return FailedOver(number, begun.by, found, begun.who)

    def freeze(self, changer: Changer, count_lanes: CountLanes, may_replace: MayReplace) -> Generation:
        """Open a generation in which it is failed over."""
        return changer.fail_over(self.topics, count_lanes, may_replace)

    def back(self, count_lanes: CountLanes, since: int) -> Propose:
        """Propose what follows where that is undone. `since`: only of what this generation has failed over; 0: of
        all."""
        if not since:
            return giving_back(self.topics, count_lanes)

        def propose(control: Control) -> Proposal | None:
            mine = [topic for topic in self.topics if control.failed_over.get(topic) == since]
            return giving_back(mine, count_lanes)(control)

        return propose


Scope = WholeFlow | SomeTopics
"""What one call of the command is about."""


def check_known(flow: Flow, topics: Collection[str], control: Control, claims: Claims) -> None:
    """Raise ConfigError where the flow has never copied one of these topics. The source isn't asked."""
    known = {claim.source.topic for claim in claims.claims.values()} | control.first_listing().keys()
    for topic in topics:
        if topic not in known | control.failed_over.keys():
            near = suggestion(topic, known)
            raise ConfigError(f"flow {flow.name} has never copied a source topic {topic!r}{near}")


def topics_said(topics: Collection[str]) -> str:
    """Name topics, the first ones of many."""
    named = ", ".join(sorted(topics)[:TOPICS_SAID])
    more = f" and {len(topics) - TOPICS_SAID} more" if len(topics) > TOPICS_SAID else ""
    return f"topic{'s' if len(topics) > 1 else ''} {named}{more}"


def still_stands(note: FailoverNote, control: Control) -> bool:
    """Return whether what a verdict was written of is failed over still, by what it was then."""
    if not note.topics:
        return control.open is not None and control.open.number == note.generation
    found = control.failed_over
    return all(topic in found and found[topic] <= note.generation for topic in note.topics)
