"""Why Spark failed, in one line, read out of the stack traces of two languages."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from replicator.model.errors import ConfigError, Unreachable

PACKAGE = "eos-replicate"
ADVICE = (
    f"install the same {PACKAGE}[spark] and Python on every executor, or ship them with spark.archives, and name that "
    "Python with spark.pyspark.python"
)
FAILURES = (Py4JError, PySparkException, OSError, EOFError)
"""What an action raises: the job failed (the first two), or the JVM is gone (py4j lets socket errors through)."""

BROKEN = (Py4JNetworkError, ConnectionError, EOFError)
"""What an action raises when the JVM has gone; other errors of the operating system are about files."""
_LINE_MAX = 500
_UNFIT = ("ModuleNotFoundError", "ImportError", "PYTHON_VERSION_MISMATCH")
_NO_PYTHON = re.compile(r'Cannot run program "[^"]*"')
_CALLING = "An error occurred while calling "
_LOST_TASK = re.compile(r"most recent failure: Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \(([^)]*)\): (.*)")
_ADVICE = re.compile(r" Consider setting '?spark\..*")
_IN_TASK = re.compile(
    r"(?:PythonException: |An exception was thrown from the Python worker\. Please see the stack trace below\.\n)"
    r"Traceback \(most recent call last\):\n(.*?)(?:\n\tat |\n\nJVM stacktrace:|\Z)",
    re.DOTALL,
)
"""A task's traceback as the JVM prints it (after an action of an RDD), or as PySpark's `convert_exception` does (of a
DataFrame)."""


def root(error: Exception) -> str:
    """Find the innermost cause that says something, in one line."""
    raised = raised_in_task(error)
    if raised is not None:
        return raised
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line.removeprefix(": ") for line in lines if not line.startswith(_CALLING)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    telling = [cause for cause in causes if ": " in cause]
    if causes and causes[-1] in telling:
        return causes[-1][:_LINE_MAX]
    lost = _LOST_TASK.search(lines[0]) if lines else None
    if lost is not None:
        return _ADVICE.sub("", f"{lost[2]} (on {lost[1]})")[:_LINE_MAX]
    return (telling or causes or lines or [type(error).__name__])[-1 if causes else 0][:_LINE_MAX]


def raised_in_task(error: Exception) -> str | None:
    """Return the last line of the Python traceback when it was a task's own code that failed, not Spark or a
    process.
    """
    found = _IN_TASK.search(str(error))
    lines = [line for line in found[1].splitlines() if line and not line[0].isspace()] if found is not None else []
    return lines[-1][:_LINE_MAX] if lines else None


def unfit(error: Exception) -> ConfigError | None:
    """Say what to do about executors that can't run this program; None where that isn't why a job failed."""
    no_python = _NO_PYTHON.search(str(error))
    if no_python is not None:
        return ConfigError(f"the executors cannot start Python: {no_python[0]}{_place(error)}; {ADVICE}")
    raised = raised_in_task(error)
    if raised is not None and any(word in raised for word in _UNFIT):
        return ConfigError(f"the executors cannot run this program: {raised}{_place(error)}; {ADVICE}")
    return None


def out_of_memory(error: Exception) -> Unreachable | None:
    """Say what to set where a JVM had too little memory; None where that isn't why a job failed. A local JVM is gone
    then, and nothing is left of it but a broken connection."""
    text = str(error)
    if "OutOfMemoryError" not in text and "exited with code 52" not in text and not isinstance(error, BROKEN):
        return None
    found = "ran out of memory" if "OutOfMemoryError" in text else "has ended, as it does when it runs out of memory"
    return Unreachable(
        f"Spark's JVM {found}{_place(error)}: give it more with --conf spark.driver.memory=4g where Spark runs in this "
        "process (a local master), with --conf spark.executor.memory=4g on a cluster; the default is 1g"
    )


def _place(error: Exception) -> str:
    """Say which executor it was that failed last, if Spark says so."""
    lost = _LOST_TASK.search(str(error))
    return f" (on {lost[1]})" if lost is not None else ""
