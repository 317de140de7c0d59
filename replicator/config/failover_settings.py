"""`failover` of a flow: the commands that its failover runs. Always those of the file that the command is given: they
are never stored with the flow's settings, or whoever may write to the target could have them run."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from replicator.config.units import MILLISECONDS

HOOKS = ("on_freeze", "on_verdict", "on_undo")


def _list_of_words(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError("expected a list of words, [command, argument]: no shell reads it")
    return value


def _command(words: tuple[str, ...]) -> tuple[str, ...]:
    """Check that a command can be found from any directory, and that no argument holds NUL."""
    if not words:
        return words
    if "/" in words[0] and not words[0].startswith("/"):
        raise ValueError(f"{words[0]!r}: expected an absolute path, or a name that is looked for in PATH")
    if not words[0] or any("\0" in word for word in words):
        raise ValueError("the first word names a command, and no word holds a NUL character")
    return words


Command = Annotated[tuple[str, ...], BeforeValidator(_list_of_words), AfterValidator(_command)]


class FailoverSettings(BaseModel):
    """Commands that `eos-replicate failover` runs at its steps."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    on_freeze: Command = Field(
        default=(),
        description="Command and arguments, each a word of its own, that `failover` runs once nothing is copied any "
        "more, such as one that keeps clients from the source. No shell reads it. It gets what is known as JSON on "
        "standard input. Where it fails the flow runs again. Empty: none.",
    )
    on_verdict: Command = Field(
        default=(),
        description="The same once the verdict is kept, such as one that has clients find the target. It gets the "
        "verdict. Where it fails the flow stays failed over.",
    )
    on_undo: Command = Field(
        default=(),
        description="The same for `failover --undo`, before the flow runs again. Where it fails the flow stays failed "
        "over.",
    )
    hook_timeout_ms: Annotated[int, Field(strict=True, ge=100, le=3_600_000), MILLISECONDS] = Field(
        default=30_000,
        description="Each of these commands, and all that it has started, is killed this long after its start.",
    )

    def command(self, hook: str) -> tuple[str, ...]:
        """Return what a hook of `HOOKS` runs; empty: nothing."""
        words: tuple[str, ...] = getattr(self, hook)
        return words
