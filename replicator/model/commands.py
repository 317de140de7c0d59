"""What an operator can decide about an incident, by its kind. Pure data.

`incident resolve` refuses any other command, and lanes act on no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Command(StrEnum):
    """What a lane is told to do about an incident that stops a partition."""

    RETRY = "retry"  # check the partition again: the cause was removed
    SKIP = "skip"  # go on behind the source offsets that can't be copied
    SET_ASIDE = "set-aside"  # the same for one record, which is kept in the flow's topic for such
    ADOPT = "adopt"  # take what the target has for the copy of all before a source offset, and go on there

    RESTART_TOPIC = "restart-topic"  # copy the topic that is there now from its beginning, behind what the target has

    @property
    def option(self) -> str:
        """How it is typed."""
        return f"--{self.value}"

    @property
    def usage(self) -> str:
        """How it is typed, with what it needs besides."""
        offset = " OFFSET" if self is Command.ADOPT else ""
        return f"{self.option}{offset}" + (" --why TEXT" if self.needs_reason else "")

    @property
    def moves(self) -> bool:
        """Whether the position moves past what is not copied."""
        return self in (Command.SKIP, Command.SET_ASIDE)

    @property
    def needs_reason(self) -> bool:
        """Whether it has to be said why: nobody can find out later from the records themselves."""
        return self is not Command.RETRY


ONE_RECORD = frozenset(
    {
        "record_too_large",
        "record_refused",
        "header_not_carriable",
        "timestamp_not_carriable",
        "target_timestamp_bounds",
    }
)
"""Kinds that one source record causes, at the incident's offset: they are over once the position has passed it."""

TRUNCATED = "source_truncated"
"""The kind of a partition that goes back: what was copied behind the cut stays on the target."""
READING_SHOWS = ONE_RECORD | {TRUNCATED}
"""Kinds that a new producer session finds only by reading on: they are over once the position has passed them, and no
earlier."""

_DECIDED_BY_LANES = (
    "source_corrupt",
    "target_lost_data",
    "target_has_later_records",
    "target_transaction_open",
    "target_records_hidden",
)

RECREATED = (SOURCE_RECREATED, TARGET_RECREATED) = ("source_topic_recreated", "target_topic_recreated")
"""Kinds of partitions of which one topic is another one under the same name."""

LOST = frozenset({*RECREATED, "target_topic_deleted", "position_expired"})
"""Kinds of partitions whose position may have gone: where it has, the incident has no offset."""

_WITHOUT_POSITION = ("position_expired", "position_unreadable", "target_not_empty")
"""Kinds of partitions that have no position of this flow, or none that can be read, over a target with records."""

COMMANDS: Mapping[str, tuple[Command, ...]] = {
    "source_records_gone": (Command.RETRY, Command.SKIP),
    TRUNCATED: (Command.RETRY, Command.SKIP),
    **dict.fromkeys(sorted(ONE_RECORD), (Command.RETRY, Command.SKIP, Command.SET_ASIDE)),
    **dict.fromkeys(_DECIDED_BY_LANES, (Command.RETRY,)),
    **dict.fromkeys(_WITHOUT_POSITION, (Command.RETRY, Command.ADOPT)),
    **dict.fromkeys(RECREATED, (Command.RETRY, Command.RESTART_TOPIC)),
}
"""By kind. To any other no command applies: each discovery checks it again, or the whole flow stands still."""


SET_POSITION = frozenset({"target_has_later_records"})
"""Kinds of which the cause stays: a decision of another kind, about the position, lets the flow go on."""

REBUILD_CONTROL = frozenset({"control_topic_lost", "control_topic_behind", "position_newer_than_control"})
"""Kinds of a control topic that was lost, or has lost records: a command makes it anew."""


def commands_for(name: str) -> tuple[Command, ...]:
    """Return the commands that apply to incidents of this kind."""
    return COMMANDS.get(name, ())
