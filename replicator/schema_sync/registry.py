"""What is asked of a schema registry, in the words of its API (that of Confluent's, which others speak too)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from replicator.model.errors import SchemaRefused, Unsupported
from replicator.schema_sync.http import MISSING, RegistryConnection
from replicator.schemas.schema import Schema, UnreadableSchema, Version, body_of, schema_from

PAGE = 200
"""Versions that are asked for at once; a registry may give fewer."""
IMPORT = "IMPORT"
DELETED_TOO = {"deleted": "true"}
VERSION_GONE = frozenset({40402, 40406, 40401, 40404})
"""Error codes of a version or subject that isn't there, or is soft-deleted already."""
MODE_GONE = frozenset({40401, 40409})
"""Error codes of a subject that has no mode of its own."""


class SchemaRegistry:
    """One registry. Of one thread. All raise what `RegistryConnection.ask` does."""

    def __init__(self, connection: RegistryConnection) -> None:
        self._connection = connection
        self.name = connection.name

    def close(self) -> None:
        """Close its connection."""
        self._connection.close()

    def schemas(self) -> dict[Version, Schema]:
        """Read all versions of all subjects, soft-deleted ones too.

        Most come with a few questions. A registry that has no such list, or leaves out what is soft-deleted, is asked
        for each version that is missing in it.
        """
        listed = self._listed()
        if listed is None:
            listed = {}
        subjects = self._subjects()
        numbers: dict[str, set[int]] = defaultdict(set)
        for at in listed:
            numbers[at.subject].add(at.number)
        for subject in subjects:
            known = numbers[subject]
            if not known or len(known) < max(known):
                listed |= self._rest_of(subject, known)
        return listed

    def _subjects(self) -> list[str]:
        try:
            return self._texts(self._connection.ask("GET", "subjects", query=DELETED_TOO))
        except SchemaRefused as error:
            if error.status not in MISSING:
                raise
            raise Unsupported(f"{self.name} has no list of subjects: is it a schema registry? Check the URL") from error

    def _listed(self) -> dict[Version, Schema] | None:
        """Read what one list of all versions has; None where the registry doesn't have such a list."""
        found: dict[Version, Schema] = {}
        for deleted in ("true", "false"):
            offset = 0
            while True:
                query = {"deleted": deleted, "offset": offset, "limit": PAGE}
                page = self._connection.ask("GET", "schemas", query=query, may_lack=offset == 0)
                if page is None:
                    return None
                schemas = [self._schema(body, deleted=deleted == "true") for body in self._list(page)]
                news = [it for it in schemas if found.get(it.version) != it]
                found |= {it.version: it for it in schemas}
                offset += len(schemas)
                if not schemas or not news:
                    break  # the end; or it knows no pages, and gives the same again
        return found

    def _rest_of(self, subject: str, known: Collection[int]) -> dict[Version, Schema]:
        every = self._numbers(subject, deleted=True)
        live = self._numbers(subject, deleted=False) if set(every) - set(known) else ()
        found = {}
        for number in sorted(set(every) - set(known)):
            body = self._connection.ask(
                "GET", "subjects", subject, "versions", number, query=DELETED_TOO, may_lack=True
            )
            if body is not None:
                found[Version(subject, number)] = self._schema(body, deleted=number not in live)
        return found

    def _numbers(self, subject: str, *, deleted: bool) -> list[int]:
        found = self._connection.ask(
            "GET", "subjects", subject, "versions", may_lack=True, query=DELETED_TOO if deleted else {}
        )
        return [number for number in self._list(found or []) if isinstance(number, int)]

    def highest_id(self, known: int) -> int | None:
        """Ask for the highest id that it has given out in the default context, by one that it has; None where it
        doesn't tell."""
        found = self._connection.ask("GET", "schemas", "ids", known, query={"fetchMaxId": "true"}, may_lack=True)
        highest = found.get("maxId") if isinstance(found, dict) else None
        return highest if isinstance(highest, int) else None

    def levels(self, subjects: Iterable[str]) -> dict[str, str]:
        """Ask for the compatibility levels of these subjects, as far as they have one of their own."""
        found = {}
        for subject in subjects:
            body = self._connection.ask("GET", "config", subject, may_lack=True)
            level = body.get("compatibilityLevel") if isinstance(body, dict) else None
            if isinstance(level, str):
                found[subject] = level
        return found

    def level(self) -> str:
        """Ask for the level of subjects that have none of their own; empty where it doesn't tell."""
        body = self._connection.ask("GET", "config", may_lack=True)
        return str(body.get("compatibilityLevel", "")) if isinstance(body, dict) else ""

    def set_level(self, subject: str, level: str) -> None:
        """Set a subject's compatibility level."""
        self._connection.ask("PUT", "config", subject, body={"compatibility": level})

    def mode(self, subject: str = "") -> str | None:
        """Ask for the mode of a subject, or of the registry; None where it has none of its own."""
        body = self._connection.ask("GET", "mode", *([subject] if subject else []), may_lack=True)
        mode = body.get("mode") if isinstance(body, dict) else None
        return mode if isinstance(mode, str) else None

    def set_mode(self, subject: str, mode: str, *, force: bool = False) -> None:
        """Set the mode of a subject. `force`: also where it has versions."""
        query = {"force": "true"} if force else {}
        self._connection.ask("PUT", "mode", subject, body={"mode": mode}, query=query)

    def forget_mode(self, subject: str, otherwise: str) -> None:
        """Take a subject's own mode away; where the registry can't do that set `otherwise`."""
        try:
            self._connection.ask("DELETE", "mode", subject)
        except (SchemaRefused, Unsupported) as error:
            if isinstance(error, SchemaRefused):
                if error.code in MODE_GONE:
                    return  # another one has taken it away: what the subject has by now is a third one's
                if error.status not in MISSING:
                    raise
            if self.mode(subject) is not None:
                self.set_mode(subject, otherwise)

    def versions(self, subject: str) -> set[int]:
        """Ask for the numbers of a subject's versions, soft-deleted ones too."""
        return set(self._numbers(subject, deleted=True))

    def live(self, subject: str) -> set[Version]:
        """Ask for a subject's versions that aren't soft-deleted."""
        return {Version(subject, number) for number in self._numbers(subject, deleted=False)}

    def schema(self, at: Version) -> Schema | None:
        """Ask for one version; None where it isn't there. Whether it is soft-deleted isn't asked."""
        body = self._connection.ask(
            "GET", "subjects", at.subject, "versions", at.number, query=DELETED_TOO, may_lack=True
        )
        return None if body is None else self._schema(body, deleted=False)

    def register(self, schema: Schema, *, as_next: bool) -> None:
        """Register a schema under its own id: the subject is in mode IMPORT.

        Args:
            as_next: as the subject's next version, whichever that is by then. The registry counts it itself, and gives
                the number to nobody else; where the subject has this schema already nothing is done. Otherwise under
                its own number, where it replaces what has that number.
        """
        body = body_of(schema)
        if as_next:
            del body["version"]
        found = self._connection.ask("POST", "subjects", schema.version.subject, "versions", body=body)
        given = found.get("id") if isinstance(found, dict) else None
        if given != schema.id:
            raise Unsupported(f"{self.name} has given {schema.version} the id {given} in place of {schema.id}")

    def delete_for_good(self, at: Version) -> None:
        """Delete a version, so that its number is free again."""
        self.delete(at)
        self._connection.ask(
            "DELETE", "subjects", at.subject, "versions", at.number, query={"permanent": "true"}, may_lack=True
        )

    def delete(self, at: Version) -> None:
        """Soft-delete a version."""
        try:
            self._connection.ask("DELETE", "subjects", at.subject, "versions", at.number)
        except SchemaRefused as error:
            if error.code not in VERSION_GONE:
                raise

    def _schema(self, body: Any, *, deleted: bool) -> Schema:
        try:
            return schema_from(body, deleted=deleted)
        except UnreadableSchema as error:
            raise Unsupported(f"{self.name} answers with what is {error}") from error

    def _list(self, found: Any) -> list[Any]:
        if not isinstance(found, list):
            raise Unsupported(f"{self.name} answers with {type(found).__name__} in place of a list")
        return found

    def _texts(self, found: Any) -> list[str]:
        return [it for it in self._list(found) if isinstance(it, str)]
