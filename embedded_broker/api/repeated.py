"""Names that a request repeats: merged after decoding, before any handler sees them, for all APIs in one place.

A client that repeats a name a thousand times must not have the same work done, or the same answer built, a thousand
times. What Kafka does with repeated names differs from API to API, and was asked of Kafka 4.3:

- Produce and DeleteRecords take the last of them, and answer once. So it is here.
- DescribeProducers, DescribeTransactions, OffsetFetch and DescribeGroups answer every one. Here they are answered once;
  no client asks twice.
- Admin APIs refuse them, ListOffsets, too, with INVALID_REQUEST. That is said by their handlers.
- OffsetCommit, FindCoordinator and others answer every one, with a few bytes for each. So do their handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Any

Items = Sequence[Any]


def _topic(item: Any) -> object:
    """Return the topic that an item is about, which later versions name by id. An empty name is a name, and no id an
    id: what they name isn't there, which the handlers say."""
    fields = ("topic_id", "name", "topic")
    return next((value for field in fields if (value := getattr(item, field, None)) is not None), None)


@dataclass(frozen=True, slots=True)
class Once:
    """An array whose items are merged if they have the same name."""

    field: str
    name: Callable[[Any], object] = lambda item: item
    inner: Once | None = None
    """An array in the items. Those of merged items are put together, null with anything is null; without one the last
    item counts."""

    def merged(self, holder: Any) -> Any:
        """Return the request, or the item of one, without repeated names; itself if there are none."""
        items: Items | None = getattr(holder, self.field, None)
        if not items:
            return holder
        kept: Items = items
        if len(items) > 1:
            found: dict[object, Any] = {}
            for item in items:
                name = self.name(item)
                found[name] = self._both(found[name], item) if name in found and self.inner else item
            if len(found) < len(items):
                kept = tuple(_put_together(item, self.inner) for item in found.values())
        if self.inner is not None:
            inner = self.inner
            within = [inner.merged(item) for item in kept]
            if not _are_same(within, kept):
                kept = tuple(within)
        return holder if kept is items else replace(holder, **{self.field: kept})

    def _both(self, one: Any, other: Any) -> Any:
        """Collect items of one name in a list: each is only copied once."""
        if isinstance(one, _Same):
            one.items.append(other)
            return one
        return _Same([one, other])


def _are_same(items: Items, others: Items) -> bool:
    return all(map(is_, items, others))


@dataclass(slots=True)
class _Same:
    items: list[Any]


def _put_together(found: Any, inner: Once | None) -> Any:
    if not isinstance(found, _Same) or inner is None:
        return found
    arrays = [getattr(item, inner.field) for item in found.items]
    every = None if any(array is None for array in arrays) else tuple(each for array in arrays for each in array)
    return replace(found.items[-1], **{inner.field: every})


@dataclass(frozen=True, slots=True)
class Within:
    """An array of which every item is merged by itself, whatever names the items have."""

    field: str
    inner: Once

    def merged(self, holder: Any) -> Any:
        """See `Once.merged`."""
        items = getattr(holder, self.field, None) or ()
        within = [self.inner.merged(item) for item in items]
        return holder if _are_same(within, items) else replace(holder, **{self.field: tuple(within)})


_BY_TOPIC = Once("topics", _topic, Once("partition_indexes"))
MERGED: Mapping[str, tuple[Once | Within, ...]] = {
    "produce": (Once("topic_data", _topic, Once("partition_data", lambda item: item.index)),),
    "delete_records": (Once("topics", _topic, Once("partitions", lambda item: item.partition_index)),),
    "offset_fetch": (_BY_TOPIC, Once("groups", lambda item: item.group_id, _BY_TOPIC)),
    "describe_groups": (Once("groups"),),
    "consumer_group_describe": (Once("group_ids"),),
    "describe_log_dirs": (Once("topics", _topic, Once("partitions")),),
    "describe_producers": (_BY_TOPIC,),
    "describe_transactions": (Once("transactional_ids"),),
    "list_config_resources": (Once("resource_types"),),
    "write_txn_markers": (Within("markers", _BY_TOPIC),),
}
"""By kio's name of the API."""


def merged(name: str, request: Any) -> Any:
    """Return a decoded request of API `name` without the names that it repeats."""
    for rule in MERGED.get(name, ()):
        request = rule.merged(request)
    return request
