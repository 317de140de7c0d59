"""Durations and sizes with units: what they mean, what is refused, and that they come back as plain numbers."""

from __future__ import annotations

import re

import pytest
import yaml
from pydantic import BaseModel

from replicator.config import FlowFileError, json_schema, load_text
from replicator.config.models import Commit, Limits
from replicator.config.units import BYTES, MILLISECONDS, unit_of

FILE = """\
clusters:
  a: {properties: {bootstrap.servers: "a:9092"}}
  b: {properties: {bootstrap.servers: "b:9092"}}
flows:
  f: {source: a, target: b, topics: [t], %s}
"""


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("commit: {interval_ms: 1s}", 1_000),
        ("commit: {interval_ms: 1000}", 1_000),
        ("commit: {interval_ms: 1.5s}", 1_500),
        ("commit: {interval_ms: 500 ms}", 500),
        ("limits: {request_timeout_ms: 15m}", 900_000),
        ("limits: {request_timeout_ms: 15min}", 900_000),
        ("limits: {recommit_interval_ms: 1h}", 3_600_000),
        ("limits: {recommit_interval_ms: 1d}", 86_400_000),
        ("limits: {fetch_queue_bytes_max: 32MiB}", 33_554_432),
        ("limits: {fetch_queue_bytes_max: 32MB}", 32_000_000),
        ("limits: {produce_queue_bytes_max: 512KiB}", 524_288),
        ("limits: {record_bytes_max: 1024B}", 1_024),
        ("commit: {bytes_max: 0.5GiB}", 536_870_912),
    ],
)
def test_a_unit_is_the_number_that_it_stands_for(written: str, number: int) -> None:
    flow = load_text(FILE % written, env={}).flows["f"]
    section, _, key = written.partition(": {")
    assert getattr(getattr(flow, section), key.partition(":")[0]) == number
    assert flow.model_dump()[section][key.partition(":")[0]] == number


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("commit: {interval_ms: 1S}", "not '1S'; did you mean 1s?"),
        (
            "commit: {interval_ms: '1000'}",
            "a duration such as 500ms, 1s, 15m, 1h or 1d, not '1000'",
        ),
        ("commit: {interval_ms: -1s}", "not '-1s'"),
        ("commit: {interval_ms: 1:30}", "not '1:30'"),
        ("commit: {interval_ms: 0.5ms}", "0.5ms is not a whole number of milliseconds"),
        ("commit: {interval_ms: 32MiB}", "not '32MiB'"),
        ("commit: {interval_ms: 2h}", "must be at most 3600000 (1h), not 7200000"),
        ("commit: {interval_ms: true}", "not true"),
        ("commit: {records_max: 1s}", "expected a whole number, not '1s'"),
        ("limits: {fetch_queue_bytes_max: 32mb}", "not '32mb'; did you mean 32MB?"),
        ("limits: {fetch_queue_bytes_max: 32M}", "not '32M'; did you mean 32MiB?"),
        ("limits: {fetch_queue_bytes_max: 3GiB}", "must be at most 2146435072 (2047MiB), not 3221225472"),
        ("limits: {stop_timeout_ms: 99999999999999999999999s}", "not '99999999999999999999999s'"),
    ],
)
def test_what_is_refused_and_why(written: str, message: str) -> None:
    with pytest.raises(FlowFileError) as caught:
        load_text(FILE % written, env={})
    (fault,) = caught.value.faults
    assert fault.message.endswith(message)


def test_every_duration_and_size_takes_units_and_the_schema_says_so() -> None:
    models: tuple[type[BaseModel], ...] = (Commit, Limits)
    definitions = json_schema()["$defs"]
    seen = 0
    for model in models:
        for key, field in model.model_fields.items():
            schema, unit = definitions[model.__name__]["properties"][key], unit_of(key)
            assert {"minimum", "maximum", "default"} <= schema.keys(), key
            if unit is None:
                assert (key, schema["type"]) == ("records_max", "integer")
                continue
            assert schema["type"] == ["integer", "string"]
            written = unit.text(field.default)
            assert re.fullmatch(schema["pattern"], written), key
            assert unit.read(written) == field.default
            seen += 1
    assert seen == 13


@pytest.mark.parametrize(
    ("unit", "number", "text"),
    [
        (MILLISECONDS, 1, "1ms"), (MILLISECONDS, 900_000, "15m"), (MILLISECONDS, 86_400_000, "1d"),
        (MILLISECONDS, 1_001, "1001ms"), (MILLISECONDS, 0, "0ms"),
        (BYTES, 33_554_432, "32MiB"), (BYTES, 1_000_000_000, "1GB"), (BYTES, 1, "1B"),
    ],
)  # fmt: skip
def test_numbers_come_back_in_their_largest_unit(unit: object, number: int, text: str) -> None:
    assert unit in (MILLISECONDS, BYTES)
    known = MILLISECONDS if unit == MILLISECONDS else BYTES
    assert known.text(number) == text
    assert known.read(text) == number


def test_numbers_to_the_base_of_60_are_no_numbers() -> None:
    assert yaml.safe_load("1:30") == 90
    loaded = load_text(FILE % "exclude: []" + "spark: {conf: {spark.x: 1:30}}\n", env={})
    assert loaded.spark.conf == {"spark.x": "1:30"}
