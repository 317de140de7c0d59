"""Topics' configs as DescribeConfigs and CreateTopics show them.

Nearly all are the same for all topics, so within one answer there is one object for those that are: ten thousand topics
have 350,000 configs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embedded_broker.metadata.dynamic_configs import Default, DynamicConfigs, Source
from embedded_broker.metadata.topic_configs import CONFIGS, ConfigKind
from embedded_broker.wire.responses import Same


class TopicConfigs:
    """Those of one answer."""

    def __init__(self, dynamic: DynamicConfigs, *, describes: bool = True, asks_synonyms: bool = False) -> None:
        """
        Args:
            dynamic: the defaults of topics that are set for brokers.
            describes: for DescribeConfigs, which says more of a config than CreateTopics.
            asks_synonyms: everywhere that a config is set is told, too.
        """
        self._dynamic, self._describes, self._asks_synonyms = dynamic, describes, asks_synonyms
        self._known: dict[tuple[str, str | None], Same] = {}

    def of(self, own: Mapping[str, str]) -> list[Same]:
        """Return all configs of a topic, of which `own` are its own."""
        return [self._known.get((name, own.get(name))) or self._show(name, own) for name in CONFIGS]

    def _show(self, name: str, own: Mapping[str, str]) -> Same:
        value, source, defaults = self._dynamic.of_topic(name, own)
        if not self._describes:
            shown = Same({"name": name, "value": value, "config_source": source})
            self._known[name, own.get(name)] = shown
            return shown
        synonyms = [set_for_brokers(self._dynamic, default) for default in defaults]
        if name in own:
            synonyms.insert(0, synonym(name, own[name], Source.TOPIC))
        synonyms.append(synonym(name, CONFIGS[name].default, Source.DEFAULT))
        shown = config(name, CONFIGS[name].kind, value, source, synonyms if self._asks_synonyms else [])
        self._known[name, own.get(name)] = shown
        return shown


def set_for_brokers(dynamic: DynamicConfigs, default: Default) -> dict[str, Any]:
    """Return where the default of a topic config is set for brokers."""
    return synonym(default.name, default.value, dynamic.source(default))


def synonym(name: str, value: str | None, source: Source) -> dict[str, Any]:
    """Describe one place where a config is set."""
    return {"name": name, "value": value, "source": source}


def config(
    name: str,
    kind: ConfigKind,
    value: str | None,
    source: Source,
    synonyms: list[dict[str, Any]],
    *,
    read_only: bool = False,
) -> Same:
    """Describe one config."""
    return Same(
        {
            "name": name,
            "value": value,
            "read_only": read_only,
            "config_source": source,
            "is_sensitive": kind is ConfigKind.PASSWORD,
            "synonyms": synonyms,
            "config_type": kind,
            "documentation": None,
        }
    )
