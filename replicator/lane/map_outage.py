"""Until when a lane copies without the offset map, over its producer sessions. Pure; used by `lane.map_writer`."""

from __future__ import annotations

from dataclasses import dataclass, field

from replicator.backoff import longer

RETRY_S, RETRY_S_MAX = 2.0, 300.0


@dataclass(slots=True)
class MapOutage:
    """`reason`: why no map is written; empty while it is. `unanswered`: transactions in a row that failed while their
    block had no answer. `told`: what of the map was told to be lost.
    `fit_topic_id`: of the map topic that was last found to lose no block."""

    reason: str = ""
    unanswered: int = 0
    told: set[str] = field(default_factory=set)
    fit_topic_id: str = ""
    _until_s: float = 0.0
    _pause_s: float = RETRY_S

    def lasts(self, now_s: float) -> bool:
        """Tell whether it is too early to try again."""
        return bool(self.reason) and now_s < self._until_s

    def begin(self, reason: str, now_s: float) -> None:
        """Note that no map can be written for this reason: the more often in a row, the longer."""
        self.reason, self._until_s = reason, now_s + self._pause_s
        self._pause_s = longer(self._pause_s, RETRY_S_MAX)

    def over(self) -> None:
        """Note that a block was committed."""
        self.reason, self.unanswered, self._pause_s = "", 0, RETRY_S
