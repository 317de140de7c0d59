"""What is asked of the offset map and what it answers, as values. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from replicator.model.partition import Partition
from replicator.offset_map.translate import TranslatedOffset


class OffsetToTranslate(NamedTuple):
    """The next offset to be consumed in a partition of one side."""

    at: Partition
    offset: int


class OffsetAnswer(NamedTuple):
    """Where a consumer goes on at the other side.

    Attributes:
        asked: partition and offset of the side that was asked about.
        at: the partition of the other side.
        translated: the offset there, and what is to be known of it.
        problem: why there is none: the name of an incident, or `not_copied`; empty where the map was asked.
        said: the same in a sentence.
    """

    asked: OffsetToTranslate
    at: Partition
    translated: TranslatedOffset
    problem: str = ""
    said: str = ""

    @property
    def offset(self) -> int | None:
        """The next offset to be consumed at the other side; None: nothing says it."""
        return self.translated.offset

    @property
    def exact(self) -> bool:
        """Whether each record is consumed once: none is skipped, and none is read again."""
        return self.offset is not None and self.translated.again == 0 and not self.translated.notes

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines; without `problem` and `bounds` where there are none."""
        bounds = self.translated.bounds
        return {
            "from": {"topic": self.asked.at.topic, "partition": self.asked.at.partition, "offset": self.asked.offset},
            "to": {"topic": self.at.topic, "partition": self.at.partition, "offset": self.offset},
            "again": self.translated.again,
            "exact": self.exact,
            "notes": list(self.translated.notes),
            **({"bounds": list(bounds)} if bounds is not None else {}),
            **({"problem": self.problem, "said": self.said} if self.problem else {}),
        }


def with_delivered(answer: OffsetAnswer, delivered: int | None) -> OffsetAnswer:
    """Return the answer for a share group that has acknowledged so many records behind its offset, or nobody knows how
    many: it gets them again.
    """
    found = answer.translated
    if delivered == 0 or found.again is None:
        return answer
    again = None if delivered is None else found.again + delivered
    return answer._replace(translated=found._replace(again=again))


NOTES = {
    "ahead": "beyond what is copied: it begins where the copy ends, and reads again what it has read beyond",
    "another_topic": "the offset is of another topic of this name",
    "before_map": "copied before the map began, which doesn't tell of it",
    "before_start": "before the flow's start: it begins with the first record that the flow copied",
    "expired": "what would be next has expired there: it begins where the log begins",
    "lost": "that log has lost its end, and with it what would be next: it begins where the log ends now",
    "unmapped": "the map has a hole there: nothing is skipped, but more may be read again",
}
"""What each note of an answer means, in a sentence."""


def sentences(answer: OffsetAnswer) -> Iterator[str]:
    """Say what is to be known of an answer; nothing where it is exact."""
    if answer.problem:
        yield answer.said
    for note in answer.translated.notes:
        yield NOTES[note]
    if answer.translated.bounds is not None:
        yield f"between offsets {answer.translated.bounds[0]} and {answer.translated.bounds[1]}"
    if answer.translated.again:
        yield f"{answer.translated.again:,} records are read again"
