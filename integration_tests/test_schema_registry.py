"""Schemas go to the target's registry with their ids, by its API and by its topic: no record is unreadable there."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.compare import wait_key
from integration_tests.harness.copying import Copying
from integration_tests.harness.generated_schemas import generate
from integration_tests.harness.processes import wait_until
from integration_tests.harness.schema_registry import Registry, registry
from integration_tests.test_metrics import observed
from tests.running.users_packages import users_packages

pytestmark = pytest.mark.tier("long")
SUBJECTS = 1000


def ids_of(made: Registry) -> list[int]:
    return sorted({it["id"] for it in made.state.schemas.values()})


def write_with(flow: Copying, ids: list[int]) -> None:
    """A record with each of these ids in front, as serializers write them."""
    with_ids = [struct.pack(">bI", 0, number) + b"x" for number in ids]
    clients.put(clients.producer(flow.source), flow.topic, *with_ids)


def unreadable(flow: Copying, here: Registry, there: Registry) -> list[int]:
    """Ids in the target's records of which its registry doesn't give the schema that the source's gives."""
    address = urlsplit(there.url)
    asked = HTTPConnection(address.hostname or "", address.port)
    wrong: list[int] = []
    found = clients.read(flow.target, flow.copy)
    for value in clients.values(found):
        if value is None or value[:1] != b"\0":
            continue
        (number,) = struct.unpack(">I", value[1:5])
        asked.request("GET", f"/schemas/ids/{number}")
        answer: dict[str, Any] = json.loads(asked.getresponse().read())
        _, expected = here.answer("GET", f"/schemas/ids/{number}", None)
        if answer.get("schema") != expected["schema"]:
            wrong.append(number)
    asked.close()
    return wrong


def test_1000_subjects_by_the_api_and_a_registry_that_is_away_holds_nothing_up(make_copying: MakeCopying) -> None:
    with registry() as here, registry() as there:
        generate(here, SUBJECTS)
        both = {"source": here.url, "target": there.url, "interval_ms": 200}
        flow = make_copying(partitions=1, schema_registry=both)
        there.fault = lambda method, path: (503, b"", "")
        worker = flow.running()
        worker.wait_event("schemas_not_synced")
        write_with(flow, ids_of(here))
        flow.wait_copied()  # while the registry is away
        there.fault = lambda method, path: None
        worker.wait_event("schemas_synced_again")
        assert there.content() == here.content()
        assert there.state.configs == here.state.configs
        assert there.state.modes == {}
        assert unreadable(flow, here, there) == []
        here.register("later", '{"type": "record", "name": "later", "fields": []}')
        wait_until(lambda: there.content() == here.content(), "a new schema", lambda: str(worker.tail()))
        assert len(worker.seen("schemas_not_synced")) == 1
        code, said = flow.said("schemas")
        assert (code, said["flows"][0]["register"]) == (0, [])
        assert worker.stop() == 0, worker.tail()


def test_1000_subjects_by_the_topic(
    make_copying: MakeCopying, source: BrokerHandle, target: BrokerHandle, unique: Callable[[str], str]
) -> None:
    topic = unique("_schemas")
    with registry(source.bootstrap, topic) as here:
        generate(here, SUBJECTS)
        flow = make_copying(partitions=1, schema_registry={"mode": "topic", "topic": topic})
        worker = flow.running()
        write_with(flow, ids_of(here))
        flow.wait_copied()
        here.register("last", '"string"')
        wait_last(flow, topic)
        assert worker.stop() == 0, worker.tail()
        assert clients.topic_configs(target.bootstrap, topic)["cleanup.policy"] == "compact"
        with registry(target.bootstrap, topic) as there:
            assert there.content() == here.content()
            assert there.state.configs == here.state.configs
            assert unreadable(flow, here, there) == []
            assert there.register("new", '"bytes"') == here.state.highest_id + 1, "it goes on as the source would"


def test_a_topic_that_isnt_empty_at_the_target_is_left_alone(
    make_copying: MakeCopying, source: BrokerHandle, target: BrokerHandle, unique: Callable[[str], str]
) -> None:
    topic = unique("_schemas")
    with registry(source.bootstrap, topic) as here, registry(target.bootstrap, topic) as there:
        generate(here, 3)
        there.register("mine", '"int"')
        before = len(clients.read(target.bootstrap, topic))
        flow = make_copying(partitions=1, schema_registry={"mode": "topic", "topic": topic})
        worker = flow.running()
        worker.wait_event("incident", name="target_not_empty")
        flow.wait_copied()
        assert worker.stop() == 4, worker.tail()
        assert len(clients.read(target.bootstrap, topic)) == before


def test_what_clashes_is_named_everywhere_and_holds_up_nothing_else(make_copying: MakeCopying) -> None:
    with registry() as here, registry() as there:
        there.register("mine", '"bytes"')
        here.register("clash", '"int"')
        here.register("user", '"string"', references=[{"name": "n", "subject": "clash", "version": 1}])
        here.register("free", '"long"')
        both = {"source": here.url, "target": there.url, "interval_ms": 200}
        flow = make_copying(partitions=1, schema_registry=both)
        asked = observed(flow)
        worker = flow.running()
        worker.wait_event("schemas_in_conflict")
        here.register("later", '"float"')
        wait_until(lambda: ("later", 1) in there.content(), "another subject", lambda: str(worker.tail()))
        assert set(there.content()) == {("mine", 1), ("free", 1), ("later", 1)}
        flow.wait_copied()
        why = "the target has another schema with this id (mine version 1)"
        conflict = {"subject": "clash", "version": 1, "id": 1, "reason": why}
        expected = {"subjects": 4, "in_sync": 2, "waiting": 1, "refused": 1, "conflicts": [conflict]}
        for command in ("status", "top"):
            _, said = flow.asked(command)
            assert {key: said["schemas"][key] for key in expected} == expected, command
        page = asked.get("/")[1]
        assert "4 subjects with 4 schemas: 2 in sync, 1 waiting, 1" in page
        assert why in page
        assert checked(flow) == (1, f"check: flow {flow.name}: schema clash version 1 (id 1): {why}")
        for words in ("", "?permanent=true"):
            there.answer("DELETE", f"/subjects/mine/versions/1{words}", None)
        worker.wait_event("schemas_synced_again", timeout_s=90)
        assert {at: it for at, it in there.content().items() if at[0] != "mine"} == here.content()
        assert checked(flow)[0] == 0
        assert worker.stop() == 0, worker.tail()


def checked(flow: Copying) -> tuple[int, str]:
    """Exit code of `status --check`, and what it names."""
    command = [sys.executable, "-m", "cli.main", "status", "-c", str(flow.file.path), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=users_packages())
    return done.returncode, done.stderr.strip()


def wait_last(flow: Copying, topic: str) -> None:
    """Until the copy of the registry's topic has its last record."""
    last = b'{"keytype":"SCHEMA","subject":"last","version":1,"magic":1}'
    wait_key(flow.target, topic, 1, last)
