"""Command groups that say which command was probably meant."""

from __future__ import annotations

import difflib

import click


class SuggestingGroup(click.Group):
    """A group that answers a misspelt command with the nearest one that it has."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but for a suggestion. It compares names only, so no command's module is imported."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], known, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)
