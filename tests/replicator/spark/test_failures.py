"""A failed Spark job is explained by what the clusters say."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PythonException

from replicator import config
from replicator.model.errors import Unreachable
from replicator.proof.snapshot import Snapshot
from replicator.spark.cause import root
from replicator.spark.failures import explained

FLOW = config.load_text(
    """\
clusters:
  a: {properties: {bootstrap.servers: "127.0.0.1:1"}}
  b: {properties: {bootstrap.servers: "127.0.0.1:2"}}
flows: {f: {source: a, target: b, topics: [t]}}
""",
    env={},
).flows["f"]


@pytest.mark.tier("extended")
def test_a_cluster_that_went_while_it_was_read_is_named() -> None:
    with (
        pytest.raises(Unreachable, match=r"cluster 'a' \(127.0.0.1:1\) did not answer"),
        explained(FLOW, Snapshot((), (), 0), connect_timeout_ms=500),
    ):
        raise Py4JError("Job aborted due to stage failure")


@pytest.mark.parametrize(
    "error",
    [
        Py4JError("Job aborted due to stage failure: java.lang.OutOfMemoryError: Java heap space"),
        ConnectionRefusedError(111, "Connection refused"),
    ],
)
def test_too_little_memory_says_what_to_set(error: Exception) -> None:
    """A local JVM that runs out of memory ends, and leaves a broken connection."""
    with (
        pytest.raises(Unreachable, match=r"--conf spark.driver.memory=4g .*--conf spark.executor.memory=4g"),
        explained(FLOW, Snapshot((), (), 0), connect_timeout_ms=500),
    ):
        raise error


def test_a_full_disk_is_not_taken_for_it() -> None:
    with pytest.raises(OSError, match="No space"), explained(FLOW, Snapshot((), (), 0), connect_timeout_ms=500):
        raise OSError(28, "No space left on device")


def test_a_fault_of_our_own_stays_one() -> None:
    with pytest.raises(ZeroDivisionError), explained(FLOW, Snapshot((), (), 0), connect_timeout_ms=500):
        raise ZeroDivisionError


TRACEBACK = """\
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1988, in process
    serializer.dump_stream(out_iter, outfile)
replicator.model.errors.Unreachable: cluster 'a' (127.0.0.1:1) closed the connection
"""
OF_PYSPARK = f"\n  An exception was thrown from the Python worker. Please see the stack trace below.\n{TRACEBACK}"
OF_THE_JVM = "org.apache.spark.api.python.PythonException"
THREE_FORMS = {
    "of PySpark": OF_PYSPARK,
    "of PySpark, with the JVM's": f"{OF_PYSPARK}\n\nJVM stacktrace:\n{OF_THE_JVM}\n\tat org.x.java\nCaused by: x: y",
    "of the JVM": f"Lost task: {OF_THE_JVM}: {TRACEBACK}\n\tat org.x.java\nCaused by: x: y",
}


@pytest.mark.parametrize("message", THREE_FORMS.values(), ids=THREE_FORMS)
def test_what_a_task_raised_is_said_and_not_only_that_it_did(message: str) -> None:
    said = "replicator.model.errors.Unreachable: cluster 'a' (127.0.0.1:1) closed the connection"
    assert root(PythonException(message)) == said
