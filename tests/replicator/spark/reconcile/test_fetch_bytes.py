"""How much the connector's consumers hold: less than the heap, however many partitions are read."""

from __future__ import annotations

import pytest

from replicator.spark.reconcile.kafka import FETCH_BYTES_MAX, FETCH_BYTES_MIN, FETCHES, fetch_bytes

MIB = 1 << 20


@pytest.mark.parametrize(
    ("conf", "most"),
    [
        ({"spark.executor.cores": "4", "spark.kafka.consumer.cache.capacity": "8"}, 128 * MIB),
        ({"spark.executor.cores": "16", "spark.executor.memory": "8g"}, 1024 * MIB),
        ({"spark.executor.cores": "16", "spark.executor.memory": "512m"}, 64 * MIB),
        ({"spark.executor.cores": "2", "spark.executor.memory": "2048"}, 256 * MIB),
    ],
)
def test_all_consumers_of_a_jvm_take_a_part_of_its_heap(conf: dict[str, str], most: int) -> None:
    consumers = int(conf["spark.executor.cores"]) + int(conf.get("spark.kafka.consumer.cache.capacity", 64))
    found = fetch_bytes(conf)
    assert FETCH_BYTES_MIN <= found <= FETCH_BYTES_MAX
    assert found * FETCHES * consumers <= most


def test_a_large_heap_is_no_reason_for_large_fetches_and_a_small_one_stops_none() -> None:
    assert fetch_bytes({"spark.executor.memory": "64g"}) == FETCH_BYTES_MAX
    assert fetch_bytes({"spark.executor.memory": "100m", "spark.executor.cores": "64"}) == FETCH_BYTES_MIN
    assert fetch_bytes({"spark.master": "local[2]", "spark.driver.memory": "64g"}) == FETCH_BYTES_MAX
    assert fetch_bytes({"spark.master": "local[2]", "spark.executor.memory": "64g"}) < FETCH_BYTES_MAX
