"""A verdict in words, for the terminal and the page. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from replicator.coupling.source_transactions import HalfCopied, PartCopied
from replicator.failover.scope import topics_said
from replicator.failover.verdict import FailedGroup, FailoverVerdict
from replicator.model.counting import counted


def headline(verdict: FailoverVerdict) -> str:
    """Say first what is lacking, and what isn't known."""
    if not verdict.ends_seen_ms:
        return "Where the source ended was never noted (groups.include has it noted): what is not copied isn't known."
    seen = _time(verdict.ends_seen_ms)
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


def looked_words(verdict: FailoverVerdict) -> str:
    """Say when it was looked at, and for whom."""
    return f"Looked at {_time(verdict.at_ms)}, by {verdict.by}."


def _topics(verdict: FailoverVerdict) -> str:
    return f"{topics_said(verdict.topics)} " if verdict.topics else ""


def transactions_words(verdict: FailoverVerdict) -> str:
    """Say how many of the source's transactions are half copied, and up to when that is known."""
    seen = verdict.transactions_seen
    if not seen.looked_ms:
        why = f" ({seen.problem})" if seen.problem else ""
        return f"Whether transactions of the source are half copied isn't known: they were never looked at{why}."
    torn, unclear = len(verdict.torn), len(verdict.transactions) - len(verdict.torn)
    said = (
        f"{counted(torn, 'transaction')} of the source {'is' if torn == 1 else 'are'} half copied"
        if torn
        else ("No transaction of the source is known to be half copied")
    )
    said += f", and of {unclear:,} more it isn't known" if unclear else ""
    said += f", as of the last look at {_time(seen.looked_ms)}; what ended after that isn't known."
    said += f" Nor is what ended before {_time(seen.since_ms)}."
    said += f" {counted(seen.left_out, 'more transaction')} had to be left out." if seen.left_out else ""
    return said + (f" Since the last look: {seen.problem}." if seen.problem else "")


def transaction_words(it: HalfCopied) -> str:
    """Say who has written a transaction."""
    ended = "committed" if it.committed else "still open at the last look"
    return f"transactional id {it.transactional_id!r}, producer id {it.producer_id}, epoch {it.epoch}, {ended}"


def part_words(part: PartCopied) -> str:
    """Say what is known of one partition of a transaction."""
    first, end = ("?" if it is None else f"{it:,}" for it in part.bounds)
    said = {True: "copied", False: "not copied", None: "not known"}[part.copied]
    position = "no position" if part.position is None else f"copied up to {part.position:,}"
    return f"{said} (within offsets {first} to {end}; {position})"


def group_words(group: FailedGroup) -> str:
    """Say where a group's partitions stand."""
    said = [f"{counted(group.synced, 'partition')} as synced last"]
    said += [f"{group.others} committed by somebody else"] if group.others else []
    said += [f"{group.unanswered} without an answer to the last commit"] if group.unanswered else []
    said += ["it has members"] if group.has_members else []
    return ", ".join(said)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
