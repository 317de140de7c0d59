"""`eos-replicate schemas`: what of the source's schema registry the target's has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options import (
    asked_flows,
    console_for_people,
    flow_options,
    patience_ms,
    print_found,
    print_wrapped,
    show_failed,
)

if TYPE_CHECKING:
    from rich.console import Console

    from replicator.config import Flow
    from replicator.model.errors import ReplicatorError
    from replicator.schema_sync.sync import RegistriesCompared

EPILOG = """\b
Examples:
  eos-replicate schemas -c flows.yaml
  eos-replicate schemas -c flows.yaml --flow orders --apply
  eos-replicate schemas -c flows.yaml --json

\b
Exit codes:
  0  the target's registry has all schemas, with their ids (--apply: now)
  1  some are missing; --apply or run registers them. Or include and exclude
     select none of the source's subjects
  2  the flow file is wrong, or no flow has both registries
  3  a registry cannot be reached, refuses the login, or is none
  4  ids or versions clash, or a change is refused: those subjects were left
     alone, and what refers to them; the others are handled as ever
"""
SHOWN_MAX = 20


@click.command(epilog=EPILOG)
@flow_options(click.option("--apply", "applies", is_flag=True, help="Register what is missing."))
def schemas(path: Path, names: tuple[str, ...], applies: bool, as_json: bool) -> int:
    """Compare the schema registries of flows, and say what would be registered at the target.

    Ids and versions stay as they are, and schemas that others refer to go first. Where the target has an id or a
    version with another schema, all such clashes are named, and nothing is written to their subjects.
    """
    from replicator.model.errors import ConfigError, ReplicatorError

    flows = [flow for flow in asked_flows(path, names) if flow.schema_registry.both]
    if not flows:
        raise ConfigError(f"{path}: no flow that was asked about has schema_registry.source and schema_registry.target")
    if applies and (copied := [flow.name for flow in flows if not flow.schema_registry.synced]):
        raise ConfigError(f"flow {copied[0]}: --apply goes with schema_registry.mode api; with topic, run copies them")
    shown: list[dict[str, Any]] = []
    failed: dict[str, ReplicatorError] = {}
    code = 0
    for flow in flows:
        try:
            compared, levels_left = _look(flow, applies=applies)
        except ReplicatorError as error:
            failed[flow.name] = error
            continue
        missing = _selects_nothing(compared) or not (applies or compared.plan.done)
        code = max(code, 4 if compared.plan.conflicts else int(missing))
        shown.append(_as_json(flow.name, compared, levels_left, applied=applies))
        if not as_json:
            _show(console_for_people(), flow.name, compared, levels_left, applies=applies)
    if as_json:
        print_found(shown, failed)
    show_failed(failed)
    return max(code, *(error.exit_code for error in failed.values()), 0)


def _look(flow: Flow, *, applies: bool) -> tuple[RegistriesCompared, dict[str, str]]:
    """Compare, and apply what nothing stands against; the plan is then what was done. What a killed process has left is
    taken away in any case. Also the compatibility levels that the target alone has. Raises ReplicatorError."""
    from contextlib import closing
    from dataclasses import replace

    from replicator.schema_sync.sync import sync_of

    with closing(sync_of(flow.schema_registry, patience_ms(flow) / 1000)) as sync:
        compared = sync.compare(levels=True)
        levels_left = sync.levels_left(compared)
        if applies:
            sync.release(compared)
            compared = replace(compared, plan=sync.apply(compared))
    return compared, levels_left


def _selects_nothing(compared: RegistriesCompared) -> bool:
    """Return whether the source has schemas, and none of them is to go over."""
    return bool(compared.source.schemas) and not compared.plan.selected


def _as_json(name: str, compared: RegistriesCompared, levels_left: dict[str, str], *, applied: bool) -> dict[str, Any]:
    plan = compared.plan
    return {
        "flow": name,
        "selected": plan.selected,
        "register": [
            {"subject": it.version.subject, "version": it.version.number, "id": it.id} for it in plan.register
        ],
        "delete": [{"subject": it.subject, "version": it.number} for it in plan.delete],
        "levels": dict(plan.levels),
        "conflicts": [it.as_json() for it in plan.conflicts],
        "held": [it.as_json() for it in plan.held],
        "only_at_target": [{"subject": it.subject, "version": it.number} for it in plan.only_there],
        "levels_only_at_target": levels_left,
        "applied": applied,
    }


def _show(
    console: Console, name: str, compared: RegistriesCompared, levels_left: dict[str, str], *, applies: bool
) -> None:
    from replicator.model.counting import counted

    plan = compared.plan
    if not compared.source.schemas:
        said = "the source's registry has none"
    elif _selects_nothing(compared):
        subjects = counted(len(compared.source.subjects), "subject")
        said = f"include and exclude select nothing of the source's {subjects}; a pattern must match all of a name"
    elif plan.done:
        said = "the target has all"
    else:
        words = ("to register", "to soft-delete", "levels to set")
        if applies:
            words = ("registered", "soft-deleted", "levels set")
        numbers = len(plan.register), len(plan.delete), len(plan.levels)
        said = ", ".join(f"{number:,} {word}" for number, word in zip(numbers, words, strict=True))
    if plan.conflicts:
        said += f"; {counted(len(plan.conflicts), 'schema')} can't go over"
    print_wrapped(console, f"{name}: {counted(plan.selected, 'schema')}: {said}", bold=name)
    _show_some(console, [f"can't go over: {it}" for it in plan.conflicts])
    verb = "registered" if applies else "register"
    _show_some(console, [f"waits: {it}" for it in plan.held])
    _show_some(console, [f"{verb} {it.version} with id {it.id}" for it in plan.register])
    _show_some(console, [f"only at the target: {it}" for it in plan.only_there])
    levels = [f"only at the target: compatibility level {it} of {subject}" for subject, it in levels_left.items()]
    _show_some(console, levels)


def _show_some(console: Console, lines: list[str]) -> None:
    for line in lines[:SHOWN_MAX]:
        print_wrapped(console, f"  {line}")
    if len(lines) > SHOWN_MAX:
        console.print(f"  and {len(lines) - SHOWN_MAX:,} more; --json has all of them")
