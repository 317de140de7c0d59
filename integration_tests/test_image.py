"""The container image: small, without root or a place to write, clear about what it can't read, stopped by SIGTERM."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from integration_tests.harness import clients, environments, image
from integration_tests.harness.broker import free_port
from integration_tests.harness.image import Container
from integration_tests.harness.processes import wait_until
from integration_tests.harness.replicator import FlowFile

pytestmark = [pytest.mark.tier("long"), pytest.mark.timeout(1_800)]
MIB_MAX = 200
STARTED_S_MAX = 2.0
USER = "10001:10001"
RECORDS = [b"%d" % number for number in range(1_000)]
Run = Callable[..., Container]


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    thorough = any(item.get_closest_marker("full") for item in request.session.items if item.path == request.path)
    return image.built(tmp_path_factory.mktemp("base"), makes_base=thorough)


@pytest.fixture
def run(built: str, unique: Callable[[str], str]) -> Iterator[Run]:
    made: list[Container] = []

    def start(*words: str, options: tuple[str, ...] = ()) -> Container:
        made.append(Container(built, unique("eos-image"), words, options))
        return made[-1]

    yield start
    for container in made:
        container.remove()


def broker(run: Run) -> str:
    """A broker of the image, which has a memory file system for its data; its address."""
    address = f"127.0.0.1:{free_port()}"
    words = ("broker", "--no-auto-create", "--data-dir", "/data", "--listen", address)
    container = run(*words, options=("--tmpfs", "/data:uid=10001,gid=10001"))
    wait_until(lambda: address in container.logs(), "the broker listens", container.logs)
    return address


def mounted(file: Path) -> tuple[str, ...]:
    file.chmod(0o644)
    file.parent.chmod(0o755)
    return ("--volume", f"{file}:/etc/eos/flows.yaml:ro")


@pytest.mark.tier("default")
def test_it_is_small_and_says_its_version_and_its_user_is_not_root(built: str) -> None:
    size = int(image.docker("image", "inspect", "--format", "{{.Size}}", built).stdout)
    assert size <= MIB_MAX * 1_000_000
    assert image.docker("image", "inspect", "--format", "{{.Config.User}}", built).stdout.strip() == USER
    label = '{{index .Config.Labels "org.opencontainers.image.version"}}'
    assert image.docker("image", "inspect", "--format", label, built).stdout.strip() == image.VERSION
    assert image.docker("run", "--rm", built, "--version").stdout == f"eos-replicate {image.VERSION}\n"
    spark = "import importlib.util as found; print(found.find_spec('pyspark'))"
    assert image.docker("run", "--rm", "--entrypoint", "python3", built, "-c", spark).stdout == "None\n"


INSTALLED = """\
import json
from importlib import metadata
print(json.dumps({found.name: found.version for found in metadata.distributions()}))
"""


@pytest.mark.tier("long")
def test_its_list_of_packages_names_what_is_installed_in_it_and_nothing_else(built: str, tmp_path: Path) -> None:
    """The tool that writes the list is neither in it nor, afterwards, in the image."""
    listed = image.sbom(built, tmp_path / "image.sbom.json")
    installed = json.loads(image.docker("run", "--rm", "--entrypoint", "python3", built, "-c", INSTALLED).stdout)
    assert listed["bomFormat"] == "CycloneDX"
    assert {part["name"]: part["version"] for part in listed["components"]} == installed
    assert installed["eos-replicate"] == image.VERSION
    names = {name.lower().replace("_", "-") for name in installed}
    assert (
        {"confluent-kafka", "pydantic-core"} <= names <= {*environments.pinned("constraints-run.txt"), "eos-replicate"}
    )
    assert [path.name for path in tmp_path.iterdir()] == ["image.sbom.json"]


@pytest.mark.tier("long")
def test_it_starts_a_flow_in_2_s(run: Run, tmp_path: Path, unique: Callable[[str], str]) -> None:
    """From the start of the container until a lane has its producer, the fastest of three. That it waited for a core
    doesn't count: other tests run beside this one."""
    source, target = broker(run), broker(run)
    clients.create_topic(source, "orders")
    took_s = []
    for _ in range(3):
        file = FlowFile(tmp_path, unique("flow"), source, target, topics=["orders"], rename=unique("copy") + ".{topic}")
        flow = run(options=mounted(file.path))
        began_s = time.monotonic()
        wait_until(partial(flow.has_logged, "lane_started"), "a lane has started", flow.logs)
        took_s.append(time.monotonic() - began_s - flow.waited_for_a_core_s())
        assert flow.stop() == 0, flow.logs()
    assert min(took_s) <= STARTED_S_MAX, took_s


def test_a_flow_between_two_brokers_of_the_image_is_copied_and_healthy(
    run: Run, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    source, target = broker(run), broker(run)
    file = FlowFile(tmp_path, unique("flow"), source, target, topics=["orders"], rename="copy.{topic}")
    listen = f"127.0.0.1:{free_port()}"
    file.listen(listen)
    clients.create_topic(source, "orders")
    clients.put(clients.producer(source), "orders", *RECORDS)
    health = ("--env", f"EOS_HEALTH_URL=http://{listen}/healthz", "--health-interval", "1s")
    flow = run(options=(*mounted(file.path), *health))
    clients.wait_value(target, "copy.orders", 0, RECORDS[-1])
    assert clients.values(clients.read(target, "copy.orders", 0)) == RECORDS
    wait_until(lambda: flow.inspected()["State"]["Health"]["Status"] == "healthy", "it is healthy", flow.logs)
    assert flow.stop() == 0, flow.logs()


@pytest.mark.tier("default")
def test_without_a_flow_file_it_says_which_one_it_wants(run: Run) -> None:
    ended = run()
    assert ended.wait() == 2
    assert "/etc/eos/flows.yaml" in ended.logs()


def test_a_flow_file_that_its_user_may_not_read_is_named(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "flows.yaml"
    file.write_text("flows: {}\n")
    options = mounted(file)
    file.chmod(0o600)
    ended = run(options=options)
    assert ended.wait() == 2
    assert "'/etc/eos/flows.yaml' is not readable" in ended.logs()


def test_a_directory_that_its_user_may_not_write_is_named(run: Run, tmp_path: Path) -> None:
    ended = run("broker", "--data-dir", "/data/log", options=("--volume", f"{tmp_path}:/data"))
    assert ended.wait() == 1
    assert "Permission denied: /data/log" in ended.logs()
