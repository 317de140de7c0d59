"""Copies a partition as a lane does, with its offset map, and with what may be done to either besides."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Producer

from integration_tests.harness import clients
from integration_tests.proof.truth import Truth, altered
from integration_tests.spark.planted import EPOCH_MS, Content
from replicator.model.partition import Span
from replicator.offset_map.block import encode_blocks
from replicator.offset_map.runs import runs_of
from replicator.offset_map.section import MapSection
from replicator.offset_map.topic import MAP_PARTITIONS

DAMAGE = ("skipped", "lost", "altered", "foreign", "doubled")
MAP_ERRORS = ("shifted", "twice", "left_out", "one_place", "aborted_data", "lost_block", "unreadable")


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Where copies and blocks go, of which source topic, and what may happen."""

    topic_id: bytes
    copy: str
    blocks_topic: str
    acts: Sequence[str]


class Writers:
    """Producers on one broker; offsets come from delivery reports."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._bootstrap, self._name = bootstrap, name
        self._made: dict[str, Producer] = {}

    def of(self, how: str) -> Producer:
        """One of each name; "plain" has no transactions."""
        if how not in self._made:
            settings = {"compression_type": random.Random(how).choice(("none", "lz4", "zstd", "gzip", "snappy"))}
            self._made[how] = (
                clients.producer(self._bootstrap, **settings)
                if how == "plain"
                else clients.transactional(self._bootstrap, f"{self._name}.{how}", **settings)
            )
        return self._made[how]

    def write(self, how: str, topic: str, partition: int, contents: Sequence[Content]) -> list[int]:
        """Write them, flushed; in a transaction that somebody else has begun, unless "plain"."""
        writer, placed, failed = self.of(how), list[int](), list[object]()

        def delivered(error: object, message: Any) -> None:
            failed.append(error) if error else placed.append(message.offset())

        for one in contents:
            writer.produce(
                topic,
                one.value,
                one.key,
                partition=partition,
                timestamp=one.timestamp_ms,
                headers=list(one.headers) or None,
                on_delivery=delivered,
            )
        assert writer.flush(clients.TIMEOUT_S) == 0
        assert not failed, failed
        return placed


class MappedLane:
    """Copies one partition as a lane does, one transaction after the other."""

    def __init__(self, flow: CopyPlan, number: int, draw: random.Random, truth: Truth, there: Writers) -> None:
        self._flow, self._number, self._draw, self._truth, self._there = flow, number, draw, truth, there
        self.position = self.next_target = self._generation = 0
        self._generation, self._lane = 1, number % MAP_PARTITIONS
        self._base = True
        self._errors = [act for act in flow.acts if act in MAP_ERRORS]
        self.left = sorted(truth.source)
        """Source offsets that were not copied yet."""

    def _happens(self, act: str, chance: float) -> bool:
        if act in self._flow.acts and self._draw.random() < chance:
            self._truth.acts.append(act)
            return True
        return False

    def copy(self) -> None:
        """A transaction or two, and what others may do between them."""
        for _ in range(self._draw.choice((1, 2))):
            if self.left:
                size = min(len(self.left), self._draw.choice((1, 1, 2, 5, 20, 60)))
                chosen, self.left = self.left[:size], self.left[size:]
                self.transaction(chosen)
                self.step(0.3)

    def step(self, chance: float) -> None:
        """Others may write."""
        if "foreign" in self._flow.acts and self._draw.random() < chance:
            self.foreign()
        if "doubled" in self._flow.acts and self._draw.random() < chance:
            self.doubled()

    def change(self) -> None:
        """Another generation, in which the partition has another lane."""
        self._generation, self._lane = self._generation + 1, self._draw.randrange(40)

    def foreign(self) -> None:
        """Somebody else writes here."""
        contents = [Content(b"foreign", b"%d" % self._draw.randrange(1 << 40), EPOCH_MS) for _ in range(2)]
        self._others(contents, plain=self._draw.random() < 0.5)

    def doubled(self) -> None:
        """Somebody writes again what the source has, if it has anything: all of a small one may have been aborted."""
        if self._truth.source:
            chosen = self._draw.choice(sorted(self._truth.source))
            self._others([self._truth.source[chosen]], plain=True)

    def _others(self, contents: list[Content], *, plain: bool) -> None:
        how = "plain" if plain else "others"
        writer = self._there.of(how)
        if not plain:
            writer.begin_transaction()
        offsets = self._there.write(how, self._flow.copy, self._number, contents)
        if not plain:
            writer.commit_transaction(clients.TIMEOUT_S)
        self._truth.target |= dict(zip(offsets, contents, strict=True))
        self._truth.foreign |= set(offsets)

    def transaction(self, offsets: Sequence[int]) -> None:
        """Copy these source records, with what may happen to them."""
        draw, truth = self._draw, self._truth
        kept = [at for at in offsets if not self._happens("skipped", 0.05)]
        truth.skipped |= set(offsets) - set(kept)
        lost = set[int]()
        if kept and self._happens("lost", 0.2):
            first = draw.randrange(len(kept))
            lost = set(kept[first : first + draw.choice((1, 2, 5))])
        writer = self._there.of("lane")
        if kept and self._happens("aborted_data", 0.15):  # its block is committed all the same
            writer.begin_transaction()
            placed = self._there.write("lane", self._flow.copy, self._number, [truth.source[at] for at in kept])
            writer.abort_transaction(clients.TIMEOUT_S)
            self._write_blocks([self._section(kept, placed, offsets[-1] + 1)], plain=True)
            truth.wrong = "aborted_data"
        writer.begin_transaction()
        placed = self._copies(kept, lost)
        after = offsets[-1] + 1
        sections = [self._section(kept, placed, after)]
        truth.count += len(kept)
        sections = self._damaged(sections, kept, placed)
        if self._happens("lost_block", 0.15):
            truth.unmapped |= {at for at in truth.source if self.position <= at < after}
        else:
            self._write_blocks(sections)
        writer.commit_transaction(clients.TIMEOUT_S)
        self.position = after
        if placed:
            self.next_target = placed[-1] + 1

    def _copies(self, kept: Sequence[int], lost: set[int]) -> list[int]:
        """Write copies in the open transaction; the places of those that are lost are taken by aborted records."""
        truth, placed = self._truth, list[int]()
        aborting = self._there.of("aborting") if lost else None
        if aborting is not None:
            aborting.begin_transaction()
        for at in kept:
            one = truth.source[at]
            if at in lost:
                placed += self._there.write("aborting", self._flow.copy, self._number, [one])
                truth.lost_places.add(placed[-1])
                continue
            if self._happens("altered", 0.05):
                one, truth.altered[at] = altered(self._draw, one)
            place = self._there.write("lane", self._flow.copy, self._number, [one])[0]
            placed.append(place)
            truth.target[place] = one
            if at not in truth.altered:
                truth.places[at] = place
        if aborting is not None:
            aborting.abort_transaction(clients.TIMEOUT_S)
        truth.lost |= lost
        return placed

    def _section(self, kept: Sequence[int], placed: Sequence[int], after: int, runs: Sequence[Span] = ()) -> MapSection:
        section = MapSection(
            source_topic_id=self._flow.topic_id,
            partition=self._number,
            before=self.position,
            after=after,
            first_target=placed[0] if placed else self.next_target,
            count=self._truth.count + len(kept),
            runs=tuple(runs or runs_of(kept)),
            base=self._base,
        )
        self._base = False
        return section

    def _damaged(self, sections: list[MapSection], kept: Sequence[int], placed: Sequence[int]) -> list[MapSection]:
        """The sections with an error of the map, now and then."""
        if not self._errors or len(kept) < 2 or self._draw.random() > 0.4:
            return sections
        error, section = self._draw.choice(self._errors), sections[0]
        if error == "shifted":
            sections = [replace(section, first_target=section.first_target + self._draw.choice((1, 2, 5)))]
        elif error == "twice":
            sections = [section, replace(section, before=section.after)]
        elif error == "left_out":
            sections = [replace(section, runs=tuple(runs_of(kept[:-1])), count=section.count)]
        elif error == "one_place":
            other = kept[: len(kept) // 2]
            sections = [
                section,
                replace(section, before=section.after, runs=tuple(runs_of(other)), first_target=placed[-len(other)]),
            ]
        else:
            return sections
        self._truth.wrong = error
        self._truth.wrong_at |= set(kept[-1:] if error == "left_out" else kept)
        self._truth.acts.append(error)
        return sections

    def _write_blocks(self, sections: list[MapSection], *, plain: bool = False) -> None:
        values = encode_blocks(self._generation, self._lane, EPOCH_MS, sections)
        if self._happens("unreadable", 0.1):
            values.append(b"\x01\x01 no block")
        contents = [Content(None, value, EPOCH_MS) for value in values]
        self._there.write("plain" if plain else "lane", self._flow.blocks_topic, self._lane % MAP_PARTITIONS, contents)

    def repair(self) -> None:
        """Copy what is missing again, behind all others."""
        truth = self._truth
        missing = sorted(truth.skipped | truth.lost)
        if not missing:
            return
        writer = self._there.of("lane")
        writer.begin_transaction()
        placed = self._copies(missing, set())
        runs = tuple(runs_of(missing))
        section = self._section([], placed, self.position, runs)
        self._write_blocks([section])
        writer.commit_transaction(clients.TIMEOUT_S)
        truth.again |= set(missing)
        truth.skipped -= truth.again
        truth.lost -= truth.again
        self.next_target = placed[-1] + 1
