"""The verdicts over records, as reports name them, whatever has compared both sides. Read by all that makes reports."""

from __future__ import annotations

SAME, MISSING, EXTRA, ALTERED, REORDERED = "same", "missing", "extra", "altered", "reordered"
DOUBLED = "doubled"
"""An extra record that equals one of the source."""
EXPIRED = "expired_on_target"
NEVER_MINE = "expired_on_source"
COMPACTED = "compacted_on_target"
COMPACTED_SOURCE = "compacted_on_source"

UNPROVEN = "unproven"
"""Nothing that either cluster still has tells whether this is a loss; the reason stands beside it."""

LOSSES = (MISSING, EXTRA, DOUBLED, ALTERED, REORDERED)
"""Verdicts that say the sides disagree."""
REMOVED = (EXPIRED, NEVER_MINE, COMPACTED, COMPACTED_SOURCE)
"""Verdicts about records that retention or compaction took away on one side: no disagreement."""

FIELDS = ("key", "value", "headers", "timestamp")
