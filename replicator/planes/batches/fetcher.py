"""Reads source partitions: whom to ask for what next, and what the answers mean. Sans-I/O, without a clock.

Whoever does the I/O calls `topics` and `looked_up`, `next_check` and `checked`, `next_fetch` and `fetched`, or
`broker_lost` for a connection and `too_large` for an answer, and `take`s what is new before the next fetch. Invariants:
- An offset that isn't there is told, never skipped (invariant 8).
- Topics are read by the id that the first look-up has given: one that is created again under the name answers nothing.
- A partition is read under the leader epoch that the client knows, and only once the position's own epoch was found to
  reach as far there (KIP-320): a log that was cut is told before anything of it is read.
- Leader epochs never go back, and the position's is one: a broker that knows an older one only isn't believed, as long
  as any of the others may know better. What an old leader says of its log is no truncation.
- What comes for a partition counts only if it was asked from where the partition stands now, and under the leader epoch
  that is known now: an old leader's log may have other records at the same offsets.
- What concerns one partition stops that partition: it is told once, and not read on until the next `seek`.
- No failure is quiet for longer than `FetcherSettings.patience_s`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kio.schema.errors import ErrorCode

from replicator.model.errors import ReplicatorError, Retriable, TopicMissing
from replicator.model.fetches import EpochEnd, EpochQuestion, FetchAnswer, FetchedPart
from replicator.model.partition import Partition
from replicator.planes.batches.asked_broker import AskedBroker, AskedCheck, Flight, NumberedFetch
from replicator.planes.batches.committed import AbortedRange, select
from replicator.planes.batches.fetch_classes import MISSING, FetchClass, code_name, fetch_class
from replicator.planes.batches.fetcher_terms import FetchedNews, FetcherSettings
from replicator.planes.batches.part_read import PartRead, ReadState, ToldBy, TopicLeaders
from replicator.planes.batches.reading_summary import ReadingSummary, summed_up
from replicator.planes.contract import ReadPlan

_ALONE, _NO_LEADER = ToldBy("", frozenset()), (0, -1, -1)
_SESSION_FAULTS_MAX = 1
"""In a row: each new session is answered at least once, or its partitions are said to fail."""


class BatchFetcher:
    """Reads the partitions of one lane."""

    def __init__(self, settings: FetcherSettings) -> None:
        self._settings = settings
        self._parts: dict[Partition, PartRead] = {}
        self._ids: dict[str, bytes] = {}
        self._leaders: dict[Partition, tuple[int, int]] = {}  # leader and its epoch
        self._checked: dict[Partition, int] = {}  # under which leader epoch its position was
        self._missing: set[str] = set()  # topics that were told to be missing, or others
        self._brokers: dict[int, AskedBroker] = {}
        self._number = 0
        self._news = FetchedNews()
        # Invariant: None once any partition's `counts` have changed. Calls that may change many of them begin with it.
        self._summary: ReadingSummary | None = None

    def seek(self, plans: Mapping[Partition, ReadPlan]) -> None:
        """Read exactly these partitions. What is under way counts no more."""
        self._summary = None
        self._news = FetchedNews()
        for topic in self._missing & {at.topic for at in plans}:  # whoever seeks it has checked what stands there now
            self._missing.discard(topic)
            self._ids.pop(topic, None)
            for at in [at for at in self._leaders if at.topic == topic]:
                del self._leaders[at]
                self._checked.pop(at, None)
        before, self._parts = self._parts, {at: PartRead(at, plan) for at, plan in plans.items()}
        for at, read in self._parts.items():
            if read.reached:
                read.state, self._news.ends[at] = ReadState.DONE, read.stands
            elif at in self._leaders and at.topic in self._ids and not 0 <= self._leaders[at][1] < read.epoch:
                self._follow(read)
                read.at_end = at in before and read.goes_on_at_the_end(before[at])
                if read.at_end and read.state is ReadState.READ:
                    self._news.ends[at] = read.stands

    def _follow(self, read: PartRead) -> None:
        """Take the leader that is known; check the position if that wasn't done under its epoch."""
        read.leader, read.leader_epoch = self._leaders[read.at]
        known = min(read.epoch, read.leader_epoch) >= 0
        unchecked = known and self._checked.get(read.at) != read.leader_epoch
        read.state = ReadState.CHECK if unchecked else ReadState.READ

    def stop(self, at: Partition) -> None:
        """Read a partition no further, until it is sought again."""
        self._summary = None
        self._parts[at].state = ReadState.DONE

    def take(self) -> FetchedNews:
        """Return what is new since the last call."""
        news, self._news = self._news, FetchedNews()
        return news

    @property
    def news_bytes(self) -> int:
        """How many bytes wait to be taken."""
        return self._news.bytes

    def topics(self, now_s: float) -> frozenset[str]:
        """Return the topics whose partitions' leaders are to be looked up now."""
        return self._summed_up(now_s).topics

    def brokers(self, now_s: float) -> set[int]:
        """Return the brokers with something to ask now, or that are asked."""
        found = {number for number, broker in self._brokers.items() if broker.flight is not None or broker.checks}
        return found | self._summed_up(now_s).ask

    def behind(self, now_s: float) -> bool:
        """Say whether there may be more of any partition than was read: its last answer didn't reach its end."""
        return self._summed_up(now_s).behind

    def wake_s(self, now_s: float) -> float | None:
        """Say when there will be something to ask without an answer coming first; None: never."""
        wake_s = self._summed_up(now_s).wake_s
        waiting = [] if wake_s is None else [wake_s]
        waiting += [broker.quiet_until_s for broker in self._brokers.values() if broker.quiet_until_s > now_s]
        return min(waiting, default=None)

    def _summed_up(self, now_s: float) -> ReadingSummary:
        if self._summary is None or now_s >= self._summary.until_s:
            self._summary = summed_up(self._parts.values(), now_s)
        return self._summary

    def _due(self, state: ReadState, now_s: float) -> Iterator[tuple[Partition, PartRead]]:
        for at, read in self._parts.items():
            if read.state is state and read.not_before_s <= now_s:
                yield at, read

    def _broker(self, number: int) -> AskedBroker:
        return self._brokers.setdefault(number, AskedBroker())

    def looked_up(self, found: Mapping[str, TopicLeaders], now_s: float, told: ToldBy = _ALONE) -> bool:
        """Take what a broker's metadata say of topics. Return whether that is of any help; if not, another broker is to
        be asked next."""
        self._summary, helps = None, True
        for at, read in self._parts.items():
            if at.topic in found and read.state is not ReadState.DONE:
                helps &= self._look(read, found[at.topic], now_s, told)
        return helps

    def _look(self, read: PartRead, found: TopicLeaders, now_s: float, told: ToldBy) -> bool:
        cluster, topic, index = self._settings.cluster, *read.at
        doing = f"find the leaders of {topic!r}"
        if found.code in MISSING:
            self._fail(read, read.missing(cluster, f"cannot {doing}: {code_name(found.code)}"))
        elif found.code == ErrorCode.topic_authorization_failed:
            self._fail(read, read.not_allowed(cluster, found.code, "Describe and Read"))
        elif found.code != ErrorCode.none or not any(found.topic_id):
            why = code_name(found.code) if found.code else "the broker gives no topic id"
            self._again(read, f"cannot {doing}: {why}", now_s)
        elif self._ids.setdefault(topic, found.topic_id) != found.topic_id:
            self._fail(read, read.missing(cluster, f"another topic is called {topic!r} now"))
        elif index not in found.leaders:
            self._fail(read, read.missing(cluster, f"cannot {doing}: there is no such partition"))
        else:
            return self._lead(read, found.leaders[index], now_s, told)
        return False  # another one may know better: a broker that is cut off knows no new topics, partitions or rights

    def _lead(self, read: PartRead, found: tuple[int, int, int], now_s: float, told: ToldBy) -> bool:
        code, leader, epoch = found
        before = self._leaders.get(read.at, (-1, -1))
        known, looked_for = max(before[1], read.epoch), read.state is ReadState.LOOK_UP
        outvoted = read.outvoted(told, older=0 <= epoch < known)
        if leader < 0 or code not in (ErrorCode.none, ErrorCode.replica_not_available):
            if looked_for:
                self._again(read, f"it has no leader: {code_name(code)}", now_s)
            return not looked_for
        if 0 <= epoch < known and not (outvoted and looked_for):  # of a broker that knows less
            if looked_for:
                self._again(read, f"a broker knows leader epoch {epoch} only, and not {known}", now_s)
            return False
        if outvoted:
            self._checked.pop(read.at, None)
        if looked_for or epoch > before[1]:
            self._leaders[read.at] = leader, epoch
            self._follow(read)
        return not looked_for or (leader, epoch) != before  # that one was asked, and isn't it

    def leaders_told(self, found: Mapping[str, TopicLeaders]) -> None:
        """Take who leads partitions that are read without a failure: an old leader that is cut off from the others
        answers like one that has nothing new."""
        self._summary = None
        for at, read in self._parts.items():
            topic = found.get(at.topic)
            if topic is None or topic.code or self._ids.get(at.topic) != topic.topic_id:
                continue
            code, leader, epoch = topic.leaders.get(at.partition, _NO_LEADER)
            reads = read.state in (ReadState.CHECK, ReadState.READ)
            if reads and leader >= 0 and code == ErrorCode.none and epoch > self._leaders[at][1]:
                self._leaders[at] = leader, epoch
                self._follow(read)

    @property
    def led(self) -> frozenset[str]:
        """Topics of which leaders are known."""
        return frozenset(at.topic for at in self._parts if at in self._leaders)

    def look_up_failed(self, why: str, now_s: float) -> None:
        """Take note that no broker answers whoever asks for leaders."""
        self._summary = None
        for _, read in list(self._due(ReadState.LOOK_UP, now_s)):
            self._again(read, why, now_s)

    def next_check(self, broker: int, now_s: float) -> dict[Partition, EpochQuestion]:
        """Return what a broker is asked about the ends of leader epochs; empty: nothing now."""
        state = self._broker(broker)
        if state.checks or now_s < state.quiet_until_s:
            return {}
        state.checks = {
            at: AskedCheck(read, EpochQuestion(read.leader_epoch, read.epoch))
            for at, read in self._due(ReadState.CHECK, now_s)
            if read.leader == broker
        }
        return {at: check.question for at, check in state.checks.items()}

    def checked(self, broker: int, answers: Mapping[Partition, EpochEnd], now_s: float) -> None:
        """Take the answer to `next_check`.

        The log was cut where the position's epoch ends before the position; or is not there any more, as a follower
        checks its own log (Partition.readRecords): another leader has written what stands at these offsets.
        """
        self._summary = None
        state = self._broker(broker)
        checks, state.checks = state.checks, {}
        for at, (read, question) in checks.items():
            if self._parts.get(at) is not read or read.state is not ReadState.CHECK:
                continue
            if read.leader_epoch != question.leader_epoch:  # another one leads now, and is to be asked
                continue
            found = answers.get(at, EpochEnd(ErrorCode.unknown_server_error))
            class_ = fetch_class(found.code)
            if class_ is FetchClass.NOT_ALLOWED:
                self._fail(read, read.not_allowed(self._settings.cluster, found.code, "Describe"))
            elif class_ is not FetchClass.DONE:
                self._again(read, f"its leader epochs: {code_name(found.code)}", now_s, class_)
            elif found.epoch < read.epoch or found.end < read.offset:
                ends = f"ends at offset {found.end}" if found.epoch == read.epoch else "isn't known there"
                detail = f"the log was cut: leader epoch {read.epoch} {ends}"
                self._fail(read, read.incident("source_truncated", detail))
            else:
                self._checked[at], read.state = read.leader_epoch, ReadState.READ
                if read.at_end:
                    self._news.ends[at] = read.stands

    def next_fetch(self, broker: int, now_s: float) -> NumberedFetch | None:
        """Make the next request to a broker; None: there is nothing to ask now, or the last one isn't answered."""
        state = self._broker(broker)
        if state.flight is not None or now_s < state.quiet_until_s:
            return None
        summary, moved, state.moved = self._summed_up(now_s), state.moved, []
        if state.last is not None and summary is state.summary:  # the same, from where they stand now
            parts, wanted, alone = state.last.parts, dict(state.last.asked), False
            wanted.update((key, parts[key].named(self._settings.part_bytes_max)) for key in moved)
        else:
            due = [read for _, read in self._due(ReadState.READ, now_s) if read.source(now_s) == broker]
            single = next((read for read in due if read.alone), None)
            alone, ids = single is not None, self._ids
            parts = {(ids[read.at.topic], read.at.partition): read for read in (due if single is None else [single])}
            bytes_max = 1 if alone else self._settings.part_bytes_max  # one batch comes, however large it is
            wanted = {key: read.named(bytes_max) for key, read in parts.items()}
            before = {} if state.last is None else state.last.parts
            if any(before.get(key, read) is not read and not read.at_end for key, read in parts.items()):
                state.session.lost()  # sought anew: the end that it may stand at was told before, and isn't again
        state.summary = summary if parts and not alone else None
        if not parts:
            return None
        self._number += 1
        state.flight = state.last = Flight(self._number, parts, wanted)
        return NumberedFetch(self._number, state.session.next_request(wanted), not alone)

    def too_large(self, broker: int, why: str, now_s: float) -> None:
        """Take note that an answer is larger than is taken, which only a batch of that size can make it: its partition
        is found by asking for one after the other, those with more to read first."""
        self._summary = None
        state = self._broker(broker)
        flight, state.flight = state.flight, None
        if flight is None:
            self.broker_lost(broker, why, now_s)
            return
        suspects = [read for read in flight.parts.values() if self._parts.get(read.at) is read]
        state.session.lost()
        for read in suspects:
            read.alone = True
        if len(suspects) == len(flight.parts) == 1:
            self._fail(suspects[0], suspects[0].incident("record_too_large", why))

    def fetched(self, broker: int, number: int, answer: FetchAnswer, now_s: float) -> None:
        """Take the answer to a request. One that isn't waited for any more changes nothing."""
        state = self._broker(broker)
        flight = state.flight
        if flight is None or flight.number != number:
            return
        state.flight, state.quiet_until_s = None, now_s + answer.throttled_s
        if not state.session.answered(answer):
            throttled = answer.code == ErrorCode.none and answer.throttled_s > 0 and not answer.parts
            state.session_faults += not throttled
            if state.session_faults > _SESSION_FAULTS_MAX:
                self._summary = None
                self._all_again(flight, f"broker {broker} answers no fetch session: {code_name(answer.code)}", now_s)
            return
        state.session_faults = 0
        if len(flight.parts) == 1:  # a session tells nothing of a partition of which there is nothing new
            next(iter(flight.parts.values())).alone, self._summary = False, None
        for part in answer.parts:
            read, asked = flight.parts[part.key], flight.asked[part.key]
            now = self._parts.get(read.at)
            if now is None or now.state is ReadState.DONE or (now is not read and now.at_end):
                continue
            fits = (asked.offset, asked.leader_epoch) == (read.offset, read.leader_epoch)
            if now is not read or read.state is not ReadState.READ or not fits:
                # What was told counts no more. It is asked for anew, since an end isn't told twice in a session.
                state.session.lost()
                self._summary = None
            else:
                before = read.counts
                self._take_part(read, part, broker, now_s)
                state.moved.append(part.key)
                if read.counts != before:
                    self._summary = None

    def _take_part(self, read: PartRead, part: FetchedPart, broker: int, now_s: float) -> None:
        class_ = fetch_class(part.code, from_leader=broker == read.leader)
        if class_ is FetchClass.DONE:
            self._select(read, part, broker, now_s)
        elif class_ is FetchClass.NEARER:
            read.nearer, read.leader_only_until_s = -1, now_s + self._settings.nearer_s
        elif class_ is FetchClass.NOT_ALLOWED:
            self._fail(read, read.not_allowed(self._settings.cluster, part.code, "Read"))
        elif class_ is FetchClass.OUT_OF_RANGE:
            self._fail(read, read.incident("source_records_gone", code_name(part.code)))
        elif class_ is FetchClass.CORRUPT:
            self._fail(read, read.incident("source_corrupt", code_name(part.code)))
        else:
            self._again(read, code_name(part.code), now_s, class_)

    def _select(self, read: PartRead, part: FetchedPart, broker: int, now_s: float) -> None:
        at, news = read.at, self._news
        news.heard.add(at)
        if part.preferred >= 0 and now_s >= read.leader_only_until_s and broker == read.leader != part.preferred:
            read.nearer, read.nearer_until_s = part.preferred, now_s + self._settings.nearer_s
        found = select(read.asked, part.records, (AbortedRange(*each) for each in part.aborted), part.last_stable)
        if found.batches:
            news.selected.setdefault(at, []).extend(found.batches)
            news.bytes += sum(each.size_bytes for each in found.batches)
        moved, read.offset = found.next_offset > read.offset, found.next_offset
        read.epoch = found.leader_epoch if found.leader_epoch >= 0 else read.epoch
        if found.refused is not None:
            self._fail(read, found.refused)
            return
        at_end = read.at_end = 0 <= part.last_stable <= read.offset
        if at_end or read.reached:
            news.ends[at] = read.stands
        elif moved:
            news.ends.pop(at, None)  # where it stood before
        if read.reached:
            read.state = ReadState.DONE
        elif len(part.records) and not moved:
            self._again(read, "what is returned doesn't begin where it was asked", now_s, FetchClass.AGAIN)
        else:
            read.succeeds()

    def broker_lost(self, broker: int, why: str, now_s: float) -> None:
        """Take note that a broker can't be asked, or has not answered: whatever is under way there isn't any more."""
        self._summary = None
        state = self._broker(broker)
        state.session.lost()
        state.flight, state.checks = None, {}
        for read in self._parts.values():
            if read.state in (ReadState.CHECK, ReadState.READ) and read.source(now_s) == broker:
                if read.source(now_s) != read.leader:
                    read.nearer, read.leader_only_until_s = -1, now_s + self._settings.nearer_s
                else:
                    self._again(read, why, now_s)

    def _all_again(self, flight: Flight, why: str, now_s: float) -> None:
        for read in flight.parts.values():
            if self._parts.get(read.at) is read and read.state is ReadState.READ:
                self._again(read, why, now_s)

    def _again(self, read: PartRead, why: str, now_s: float, class_: FetchClass = FetchClass.LOOK_UP) -> None:
        """Have it tried again after a while; tell it where it has failed for too long."""
        failing_s = read.fails(now_s)
        if failing_s >= self._settings.patience_s:
            text = f"cluster {self._settings.cluster!r}: cannot read {read.at}: {why}, for {failing_s:.0f} s"
            self._fail(read, Retriable(text))
        elif class_ is FetchClass.LOOK_UP:
            read.state = ReadState.LOOK_UP

    def _fail(self, read: PartRead, error: ReplicatorError) -> None:
        read.state = ReadState.DONE
        self._news.failed[read.at] = error
        self._news.heard.add(read.at)
        if isinstance(error, TopicMissing):
            self._missing.add(read.at.topic)
