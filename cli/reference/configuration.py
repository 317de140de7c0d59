"""docs/reference/configuration.md: every key of a flow file with type, bounds and default, from the JSON schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from cli.reference.markdown import cell, table
from replicator.config import Start, json_schema
from replicator.config.properties import OWNED
from replicator.config.registry_settings import RegistryAccess
from replicator.config.units import BYTES, MILLISECONDS, Unit, unit_of

INTRODUCTION = """\
# Flow file

Generated from the models in `replicator/config` by `python -m cli.reference`; a test checks that it is up to date.
`configs/reference.yaml` has every key with its default as a file, and
`configs/orders-dr.yaml` is a small flow.

A flow file is YAML. `eos-replicate validate` checks it without connecting, and names every fault with its key and
line. `eos-replicate schema` prints its JSON schema for editors. An unknown key, a key that is written twice and a
number out of its bounds are refused. A file has at most 1 MiB.
"""
UNITS = """\
## Durations and sizes

A duration is a whole number of milliseconds, or a number with a unit: {durations} (`m` and `min` are minutes). A size
is a whole number of bytes, or a number with a unit: {sizes}. The key is the same with and without: `interval_ms: 1s`
is `interval_ms: 1000`, and `bytes_max: 32MiB` is `bytes_max: 33554432`. `eos-replicate validate --json` prints plain
numbers.
"""
PROPERTIES = """\
## Client properties

Under `clusters.NAME.properties` stand properties of librdkafka by its names, as text, numbers or booleans.
`bootstrap.servers` is required. `${NAME}` stands for an environment variable, `$${` for `${` itself, and a value
`file:PATH` for the content of that file; a relative path starts at the directory of the flow file. Values from
there, and values that are named like a password, are printed as `[hidden]`. A password that is written into the file,
or that would be sent without TLS to another host, is refused unless the cluster has `allow_plaintext_password: true`.

`fetch.max.bytes` and `fetch.message.max.bytes` of a source say how much its reader asks for at once, in all and of one
partition, up to what `limits.record_bytes_max` takes; a batch that is larger is fetched all the same. No other client
heeds them.

These properties belong to the replicator, because exactly-once rests on them or its limits decide, and are refused:

"""
SECTIONS = (
    ("FileSection", "The file", ""),
    (
        "ClusterSection",
        "clusters.NAME",
        "A cluster. A name has letters, digits, `.`, `-` and `_`, and at most 100 characters.",
    ),
    ("FlowSection", "flows.NAME", "A flow. A name has letters, digits, `-` and `_`, and at most 100 characters."),
    ("Commit", "flows.NAME.commit", "A transaction ends when the first of these is reached."),
    (
        "RateSettings",
        "flows.NAME.rate",
        "How fast the flow may copy; `eos-replicate rate` sets another rate while it runs.",
    ),
    ("Limits", "flows.NAME.limits", "Bounds on memory and on waiting."),
    (
        "Start",
        "flows.NAME.start",
        "Where the partitions begin that are listed when the flow is first opened. A short form says the same: "
        "`start: latest`, or `start: 2026-01-31T12:00:00Z`.",
    ),
    ("TopicConfigs", "flows.NAME.topic_configs", "How target topics are created, and kept."),
    (
        "DecisionPolicy",
        "flows.NAME.policy",
        "What `run` decides about incidents by itself, by their kind: "
        "[Decided beforehand](../operate/records-left-out.md#decided-beforehand).",
    ),
    ("GapPolicy", "flows.NAME.policy.source_records_gone", ""),
    ("RecordPolicy", "flows.NAME.policy.KIND", "A rule for the other kinds."),
    (
        "SchemaRegistrySettings",
        "flows.NAME.schema_registry",
        "Schemas that go over with their ids: [Keep schemas at the target](../operate/schema-registry.md).",
    ),
    ("RegistryAccess", "flows.NAME.schema_registry.source", "And `target`: how a registry is reached."),
    ("SparkSection", "spark", "Where commands that use Spark run it. The daemon ignores it."),
    (
        "MetricsSection",
        "metrics",
        "Where `run` answers over HTTP: [Monitoring](../operate/monitoring.md).",
    ),
)
"""Model, heading, and what is said of it, in the order of the page."""
OTHERS = {"Start": Start.model_json_schema(), "RegistryAccess": RegistryAccess.model_json_schema()}
"""Models that have a short form, and so no definition in the schema."""


def page() -> str:
    """Write the whole page."""
    schema = json_schema()
    parts = [INTRODUCTION, UNITS.format(durations=_units(MILLISECONDS), sizes=_units(BYTES))]
    for name, heading, about in SECTIONS:
        definition = {"FileSection": schema, **OTHERS}.get(name) or schema["$defs"][name]
        rows = list(_rows(definition, schema["$defs"]))
        title = heading if name == "FileSection" else f"`{heading}`"
        parts.append(f"## {title}\n\n" + (f"{about}\n\n" if about else "") + table(HEADING, rows))
    parts.append(PROPERTIES + table(("property", "why"), ((f"`{key}`", reason) for key, reason in OWNED.items())))
    return "\n".join(parts)


HEADING = ("key", "value", "default", "meaning")
FIRST = ("source", "target")


def _rows(definition: dict[str, Any], others: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    ordered = sorted(definition["properties"].items(), key=lambda item: item[0] not in FIRST)
    for key, value in ordered:
        default = _default(key, value) if key not in definition.get("required", ()) else "required"
        refers_to = others.get(value.get("$ref", "").rpartition("/")[2], {})
        meaning = value.get("description") or refers_to["description"]
        yield f"`{key}`", _value(key, value, others), default, cell(meaning)


def _value(key: str, value: dict[str, Any], others: dict[str, Any]) -> str:
    """Say what may stand at a key."""
    unit = unit_of(key)
    if "$ref" in value:
        other = others[value["$ref"].rpartition("/")[2]]
        return _choices(other["enum"]) if "enum" in other else "keys, see below"
    if {"const": "auto"} in value.get("anyOf", []):
        return f"`auto`, or a whole number, {_bounds(value['anyOf'][1])}"
    if key in FIRST and "anyOf" in value:
        return "a URL, or keys, see below"
    if "anyOf" in value:
        return "`earliest`, `latest`, a time with zone, or keys, see below"
    if "enum" in value:
        return _choices(value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if unit is not None:
        return f"{'duration' if unit is MILLISECONDS else 'size'}, {_bounds(value, unit)}"
    if value["type"] == "integer":
        return f"whole number, {_bounds(value)}"
    if value["type"] == "object":
        return "keys, see below" if key != "conf" else "properties of Spark"
    return {"string": "text", "boolean": "`true` or `false`", "array": "list of text"}[value["type"]]


def _bounds(value: dict[str, Any], unit: Unit | None = None) -> str:
    low, high = (unit.text(value[each]) if unit else f"{value[each]:,}" for each in ("minimum", "maximum"))
    return f"{low} to {high}"


def _default(key: str, value: dict[str, Any]) -> str:
    default, unit = value.get("default"), unit_of(key)
    if unit is not None and isinstance(default, int):
        return f"`{default}` ({unit.text(default)})"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, list) and default:
        return f"`{json.dumps(default)}`"
    if isinstance(default, dict):
        return "as below" if default else "none"
    return "none" if default in ([], None) else f"`{default}`"


def _choices(values: list[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _units(unit: Unit) -> str:
    names = [f"`{name}`" for name in unit.factors]
    return f"{', '.join(names[:-1])} or {names[-1]}"
