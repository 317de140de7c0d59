"""What seeds draw: everything there is, within as many of them as must find a planted bug."""

from __future__ import annotations

from dataclasses import fields
from random import Random

from embedded_broker.config.settings import BrokerConfig, Fsync
from embedded_broker.config.thresholds import DEFAULTS, Thresholds
from embedded_broker.simulation import fetching, settings
from embedded_broker.simulation.schedule import KINDS_BY_SEED, LOG_START, STEPS_S_MAX, STOP, RunSchedule, WorkloadKind

SEEDS = range(60 * len(KINDS_BY_SEED))
SCHEDULES = [RunSchedule.of(seed) for seed in SEEDS]


def test_every_threshold_is_drawn() -> None:
    small = settings.SMALL | settings.CODING | settings.LEFT_BEHIND
    names = {*small, "producer_ids_block", "producer_ids_left_min"}
    assert names == {field.name for field in fields(Thresholds)}
    for name in names:
        drawn = {getattr(schedule.settings["thresholds"], name) for schedule in SCHEDULES}
        assert drawn >= {getattr(DEFAULTS, name), *small.get(name, ())}


def test_settings_are_those_of_the_broker() -> None:
    names = {field.name for field in fields(BrokerConfig)}
    assert all(set(schedule.settings) <= names for schedule in SCHEDULES)


def test_every_fsync_mode_is_drawn_with_power_cuts_where_its_promise_is_checked() -> None:
    durability = [schedule for schedule in SCHEDULES if WorkloadKind.DURABILITY in schedule.workloads]
    assert {schedule.settings["fsync"] for schedule in durability} == set(Fsync)
    assert all(schedule.power_fails for schedule in durability)
    others = [schedule for schedule in SCHEDULES if schedule not in durability]
    assert {schedule.settings["fsync"] for schedule in others} == set(Fsync)
    assert all(schedule.power_fails is (schedule.settings["fsync"] is Fsync.ALWAYS) for schedule in others)


def test_faults_of_every_kind_are_drawn() -> None:
    assert any(operations == STOP for schedule in SCHEDULES for _, operations in schedule.crashes)
    assert any(schedule.failed_sync for schedule in SCHEDULES)
    assert any(schedule.disk_full for schedule in SCHEDULES)
    assert any(crash.api == LOG_START for schedule in SCHEDULES for crash in schedule.targeted_crashes)
    assert {schedule.step_s_max for schedule in SCHEDULES} == {each for some in STEPS_S_MAX.values() for each in some}
    assert {schedule.sync_s_max > 0 for schedule in SCHEDULES} == {True, False}
    assert {offset_ms > 0 for schedule in SCHEDULES for _, offset_ms in schedule.clock_steps} == {True, False}


def test_every_way_to_fetch_is_drawn() -> None:
    random = Random(1)
    styles = {fetching.Style.of(random) for _ in SEEDS}
    assert {style.version for style in styles} == set(fetching.VERSIONS)
    assert {style.partition_bytes_max for style in styles} == set(fetching.PARTITION_BYTES_MAX)
    assert {style.in_session for style in styles if style.version >= fetching.SESSIONS_SINCE} == {True, False}
