"""Command groups that say which command was probably meant."""

from __future__ import annotations

import click

from replicator.model.nearest import nearest


class SuggestingGroup(click.Group):
    """A group that answers a misspelt command with the nearest one that it has."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does, but for a suggestion. It compares names only, so no command's module is imported."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            near = nearest(args[0], known)
            hint = f" Did you mean {near!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)
