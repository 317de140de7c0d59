"""`docs/compat.md`: with which clients and APIs the embedded broker is compatible, from what runs of tests have seen.

- `make test-compat` runs the tests of each client suite and keeps what came out in `tests/compat_results.json`;
- `integration_tests/contract/test_every_version.py` keeps which class of answer each API has in each version, of Kafka
  and of the embedded broker;
- `integration_tests/contract/deviations.py` says which differences are meant, and why.

`python -m tests.running.compat_page` writes the page from these. With `--minutes` it runs the suites first, and goes on
where the last run ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from embedded_broker.api.protocol_document import OUTSIDE
from embedded_broker.api.registry import Api, load_all
from integration_tests.contract.deviations import BY_DESIGN, DEVIATIONS, USERS, Classes, differences
from tests.running import durations, in_parts
from tests.running.tiers import ROOT

FILE = ROOT / "tests" / "compat_results.json"
PAGE = ROOT / "docs" / "compat.md"
ANSWERS = ROOT / "integration_tests" / "contract"
_CONTRACT, _FAMILIES = "integration_tests/contract/", "integration_tests/clients/test_families.py::"


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of one client. `tests`: what pytest is given; `uses`: what of the broker they use, in words."""

    client: str
    tests: tuple[str, ...]
    uses: str


_PLAN = "topics, five codecs, idempotence, transactions, groups, offsets by time, fencing, copying exactly once"
SUITES = (
    Suite("aiokafka", (f"{_FAMILIES}test_aiokafka[embedded]",), _PLAN),
    Suite("kafka-python", (f"{_FAMILIES}test_kafka_python[embedded]",), _PLAN),
    Suite("kcat (librdkafka, C)", (f"{_FAMILIES}test_kcat[embedded]",), "reading, writing, groups, offsets by time"),
    Suite("franz-go (Go)", (f"{_FAMILIES}test_franz_go[embedded]",), _PLAN),
    Suite("Java client 3.9", (f"{_FAMILIES}test_java_3[embedded]",), _PLAN),
    Suite("Java client 4.3", (f"{_CONTRACT}test_java_clients.py",), "transactions, MirrorMaker 2, operators' tools"),
    Suite("Kafka's command-line tools", (f"{_CONTRACT}test_kafka_tools.py",), "topics, groups, configs, ACLs, quorum"),
    Suite(
        "librdkafka (Python: confluent-kafka)",
        tuple(
            f"{_CONTRACT}test_{name}.py"
            for name in ("transactions", "positions", "groups", "producing", "reading", "admin", "admin_views", "kill")
        ),
        "the contract: what is tested on Kafka in the same way",
    ),
)
_NEEDS_IMAGE = ("test_java_clients.py", "test_kafka_tools.py")
"""They have Kafka's programs from its image, and the embedded broker."""


def run(suite: Suite, minutes: float) -> int:
    """Run what is left of a suite; pytest's exit code."""
    which = "kafka" if suite.tests[0].endswith(_NEEDS_IMAGE) else "not kafka"
    command = [sys.executable, "-m", "pytest", "-q", "-m", which, "--record-in", str(FILE), "--record", suite.client]
    return subprocess.run([*command, "--in-parts", f"{minutes:.2f}", *suite.tests], cwd=ROOT, check=False).returncode


def answers() -> tuple[dict[str, Classes], dict[str, Classes]]:
    """What Kafka answers, and what the embedded broker does, by who asks."""
    kafka, embedded = (json.loads((ANSWERS / f"{of}_classes.json").read_text()) for of in ("answer", "embedded"))
    return kafka, embedded


def undocumented(kafka: Mapping[str, Classes], embedded: Mapping[str, Classes]) -> list[str]:
    """Differences that no `Deviation` has, and deviations that aren't there any more."""
    found = differences(kafka, embedded)
    meant = {api: deviation.users for api, deviation in DEVIATIONS.items()}
    return [
        f"{api}: differs for {sorted(found.get(api, ()))}, and {sorted(meant.get(api, ()))} are documented"
        for api in sorted(found.keys() | meant.keys())
        if found.get(api) != meant.get(api)
    ]


def page() -> str:
    """The whole page."""
    kafka, embedded = answers()
    suites, apis, outside = _suites(durations.load(FILE)), _apis(kafka, embedded), _outside()
    return TEXT.format(suites="\n".join(suites), apis="\n".join(apis), outside="\n".join(outside))


TEXT = """\
# Compatibility of the embedded broker

What clients and requests do on `eos-replicate broker`, beside Apache Kafka 4.3. This page is made from the results of
tests by `python -m tests.running.compat_page`, and a test fails where it says something else than they do, where an API
has no row, or where an answer differs from Kafka's without a reason here.

## Clients

The programs are those that run on Kafka, unchanged. [Clients tried](testing-with-the-broker.md#clients-tried) has their
versions.

| client | what it uses | tests passed | not passed | recorded |
|---|---|---|---|---|
{suites}

## APIs

Each API is asked in each version that the broker speaks, by three kinds of clients: without an authorizer, and with one
without rights and as a super user. *Answers as Kafka's* is how many of these requests have the class of answer (the
error codes in it, or a closed connection) that Kafka was seen to give. What goes beyond that is in the contract tests,
which pass on both, and in [the protocol](protocol.md).

| key | API | versions | answers as Kafka's | what deviates, and why |
|---|---|---|---|---|
{apis}

Not spoken:

| API | keys | why |
|---|---|---|
{outside}
"""


def _suites(parts: Mapping[str, Any]) -> Iterator[str]:
    for suite in SUITES:
        entry = parts.get(suite.client)
        if entry is None:
            yield f"| {suite.client} | {suite.uses} | not run | | |"
            continue
        skipped = [f"{count} skipped ({why})" for why, count in entry["skips"].items()]
        failed = [f"`{test.rpartition('::')[2]}` failed" for test in entry["failures"]]
        left = entry["left"] - entry["failed"]
        missing = "; ".join([*failed, *skipped, *([f"{left} not run"] if left > 0 else [])])
        yield (
            f"| {suite.client} | {suite.uses} | {entry['passed']} | {missing} | {entry['date']}, {entry['commit']} |"
        )


def _apis(kafka: Mapping[str, Classes], embedded: Mapping[str, Classes]) -> Iterator[str]:
    for _, api in sorted(load_all().items()):
        same = sum(
            _class_in(kafka[user][api.name], version) == _class_in(embedded[user][api.name], version)
            for user in USERS
            for version in api.versions
        )
        told = f"{same} of {len(USERS) * len(api.versions)}"
        versions = f"{api.versions[0]} to {api.versions[-1]}"
        yield f"| {api.key} | {_title(api)} | {versions} | {told} | {_deviates(api)} |"


def _deviates(api: Api) -> str:
    told = []
    if api.name in DEVIATIONS:
        deviation = DEVIATIONS[api.name]
        told.append(
            f"{deviation.what}: {deviation.why} ({'; '.join(USERS[user] for user in USERS if user in deviation.users)})"
        )
    if api.name in BY_DESIGN:
        told.append(BY_DESIGN[api.name])
    return ". ".join(told)


def _class_in(ranges: Mapping[str, str], version: int) -> str:
    """The class of answer in a version: ranges are named "3-12", or "3"."""
    for name, found in ranges.items():
        first, _, last = name.partition("-")
        if int(first) <= version <= int(last or first):
            return found
    raise KeyError(version)


def _title(api: Api) -> str:
    return "".join(part.capitalize() for part in api.name.split("_"))


def _outside() -> Iterator[str]:
    return (f"| {names} | {', '.join(map(str, keys))} | {why} |" for names, keys, why in OUTSIDE)


@click.command()
@click.option("--minutes", type=float, default=0.0, help="Run tests for about so long first.")
def main(minutes: float) -> None:
    """Run what is left of the suites, and write the page."""
    end_s, failed = time.monotonic() + 60 * minutes, []
    for suite in SUITES:
        left, entry = (end_s - time.monotonic()) / 60, durations.load(FILE).get(suite.client)
        if left <= 0 or (entry and not entry["left"] and not entry["failed"] and in_parts.same_code(entry["code"])):
            continue
        click.echo(f"--- {suite.client}")
        if run(suite, left):
            failed.append(suite.client)
    Path(PAGE).write_text(page())
    if failed:
        raise click.ClickException(f"failed: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
