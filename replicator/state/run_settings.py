"""What operators have set of a flow while it runs: what is paused, and how fast it may copy. Pure.

One record of the flow's control topic holds all of it, so that it stands over a restart. `pause`, `resume` and `rate`
write it by way of `control`, under the flow's control id: of two at once the second begins with what the first has
written. `flow.settings_watch` reads it for the lanes, which read no record of what is paused and keep to the rates.

Nothing that was copied depends on it, so older versions may ignore it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from replicator.config import Flow
from replicator.model.counting import counted
from replicator.state.envelope import NotOurs, unwrap, wrap

RUN_SETTINGS = "run_settings"
KEY = b"run_settings"
FLOW = ""
"""In the place of a topic: the flow as a whole. No topic has this name."""
TOPICS_MAX = 1_000
"""That have a setting of their own: all of them are one record."""
_KINDS = frozenset({RUN_SETTINGS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """Who has paused it, when (ms since 1970 UTC) and why."""

    by: str
    at_ms: int
    why: str = ""

    @property
    def said(self) -> str:
        """For people."""
        return f"paused by {self.by}" + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """At most so many records, and bytes of keys, values and headers, a second; None: no limit. `by`: who has set it,
    empty where the flow file has."""

    records_per_s: int | None = None
    bytes_per_s: int | None = None
    by: str = ""
    at_ms: int = 0

    @property
    def limits(self) -> bool:
        """Whether there is any."""
        return self.records_per_s is not None or self.bytes_per_s is not None

    @property
    def said(self) -> str:
        """For people."""
        limits = [(self.records_per_s, "record"), (self.bytes_per_s, "byte")]
        said = " and ".join(f"{counted(limit, noun)}/s" for limit, noun in limits if limit is not None) or "no limit"
        if self.by:
            return f"{said}, set by {self.by}"
        return f"{said}, as the flow file says" if self.limits else said

    @property
    def bound_said(self) -> str:
        """The same within a sentence: `at most 500 records/s`, `no limit`."""
        return f"at most {self.said}" if self.limits else self.said


def rate_of(flow: Flow) -> RateLimit:
    """Return the rate that the flow file has."""
    return RateLimit(records_per_s=flow.rate.records_per_s or None, bytes_per_s=flow.rate.bytes_per_s or None)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """By source topic, or `FLOW` for all of them. `number` grows with each change; `token` is the last one's."""

    paused: Mapping[str, Paused] = field(default_factory=dict)
    rates: Mapping[str, RateLimit] = field(default_factory=dict)
    number: int = 0
    token: str = ""

    def pause(self, topics: Collection[str], paused: Paused) -> RunSettings:
        """Return settings with these topics paused, or the flow where there are none. What was paused before stays as
        it was said.
        """
        return self._next(paused={**dict.fromkeys(topics or (FLOW,), paused), **self.paused})

    def resume(self, topics: Collection[str]) -> RunSettings:
        """Return settings with these topics not paused any more; without any nothing of the flow is."""
        return self._next(paused={at: it for at, it in self.paused.items() if topics and at not in topics})

    def limit(self, topics: Collection[str], rate: RateLimit | None) -> RunSettings:
        """Return settings with this rate for each of these topics, or for the flow; None: as the flow file says."""
        places = topics or (FLOW,)
        rest = {at: it for at, it in self.rates.items() if at not in places}
        return self._next(rates=rest if rate is None else {**rest, **dict.fromkeys(places, rate)})

    def _next(self, **changes: Any) -> RunSettings:
        return replace(self, number=self.number + 1, **changes)

    def paused_at(self, topic: str) -> Paused | None:
        """Say why a topic is paused: by itself, or with the flow."""
        return self.paused.get(FLOW) or self.paused.get(topic)

    def effective(self, from_file: RateLimit) -> Mapping[str, RateLimit]:
        """Return what limits there are, by topic, and of the flow: `from_file` is its own until an operator sets
        another.
        """
        return {at: limit for at, limit in self.told(from_file).items() if limit.limits}

    def told(self, from_file: RateLimit) -> Mapping[str, RateLimit]:
        """Return what limits people are told of: those that there are, and that an operator has set none."""
        return {**({FLOW: from_file} if from_file.limits else {}), **self.rates}

    def same(self, other: RunSettings) -> bool:
        """Return whether the same is paused, and the same limited."""
        return self.paused == other.paused and {at: _bare(it) for at, it in self.rates.items()} == {
            at: _bare(it) for at, it in other.rates.items()
        }

    @property
    def topics(self) -> frozenset[str]:
        """Those with a setting of their own."""
        return frozenset(self.paused.keys() | self.rates.keys()) - {FLOW}

    def encode(self) -> tuple[bytes, bytes]:
        """Return key and value in the control topic."""
        content = {
            "paused": {at: asdict(it) for at, it in self.paused.items()},
            "rates": {at: asdict(it) for at, it in self.rates.items()},
            "number": self.number,
            "token": self.token,
        }
        return KEY, wrap(RUN_SETTINGS, content, must_understand=False)


NO_SETTINGS = RunSettings()


def _bare(rate: RateLimit) -> tuple[int | None, int | None]:
    return rate.records_per_s, rate.bytes_per_s


def decode(value: bytes) -> RunSettings | None:
    """Decode the record's settings; None for one that may be ignored. Raises NotOurs, NewerFormat."""
    body = unwrap(KEY, value, _KINDS)
    if body is None:
        return None
    try:
        return RunSettings(
            {str(at): _paused(it) for at, it in body["paused"].items()},
            {str(at): _rate(it) for at, it in body["rates"].items()},
            int(body["number"]),
            str(body["token"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotOurs(f"unreadable record {KEY!r}: {error!r}") from error


def _paused(body: Mapping[str, Any]) -> Paused:
    return Paused(by=str(body["by"]), at_ms=int(body["at_ms"]), why=str(body["why"]))


def _rate(body: Mapping[str, Any]) -> RateLimit:
    return RateLimit(
        records_per_s=_limit(body["records_per_s"]),
        bytes_per_s=_limit(body["bytes_per_s"]),
        by=str(body["by"]),
        at_ms=int(body["at_ms"]),
    )


def _limit(value: Any) -> int | None:
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise ValueError(f"a limit of {value!r}")
    return value
