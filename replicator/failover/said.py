"""A verdict in words, for the terminal and the page. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from replicator.failover.scope import topics_said
from replicator.failover.verdict import FailedGroup, FailoverVerdict
from replicator.model.counting import counted


def headline(verdict: FailoverVerdict) -> str:
    """Say first what is lacking, and what isn't known."""
    if not verdict.ends_seen_ms:
        return (
            "Where the source ended was never noted, because the flow has no groups.include: what is not copied isn't "
            "known."
        )
    seen = datetime.fromtimestamp(verdict.ends_seen_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    later = f"What was written at the source after {seen} isn't known."
    if verdict.complete:
        return f"All is copied that the source had at {seen}. {later}"
    unknown = f", and of {counted(verdict.unknown, 'partition')} it isn't known" if verdict.unknown else ""
    return f"At least {counted(verdict.not_copied, 'source offset')} are not copied{unknown}. {later}"


def state_words(verdict: FailoverVerdict, *, stands: bool = True) -> str:
    """Say whether the flow is failed over. `stands`: whether it was not undone since."""
    if verdict.generation is None:
        return f"{_topics(verdict)}rehearsed, nothing was changed"
    undone = "" if stands else ", and undone since"
    return f"{_topics(verdict)}failed over (generation {verdict.generation}){undone}"


def _topics(verdict: FailoverVerdict) -> str:
    return f"{topics_said(verdict.topics)} " if verdict.topics else ""


def group_words(group: FailedGroup) -> str:
    """Say where a group's partitions stand."""
    said = [f"{counted(group.synced, 'partition')} as synced last"]
    said += [f"{group.others} committed by somebody else"] if group.others else []
    said += [f"{group.unanswered} without an answer to the last commit"] if group.unanswered else []
    said += ["it has members"] if group.has_members else []
    return ", ".join(said)
