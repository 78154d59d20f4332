"""The values that a configuration accepts at each place, from pydantic's JSON schema of the dataclasses.

One source for the places of errors, did-you-mean and the reference page, so that none of them repeats the schema.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter


@functools.cache
def adapter(schema_type: Any) -> TypeAdapter[Any]:
    """Make pydantic's validator of a configuration dataclass, once, because that takes most of a second."""
    return TypeAdapter(schema_type)


@dataclass(frozen=True)
class Shape:
    """The schema of one place. `schema` is JSON schema without a top-level `$ref`; `definitions` its `$defs`."""

    schema: dict[str, Any]
    definitions: dict[str, Any]

    @staticmethod
    @functools.cache
    def of(schema_type: Any) -> "Shape":
        """Return the shape of a configuration dataclass."""
        schema = adapter(schema_type).json_schema()
        return Shape({}, schema.get("$defs", {}))._at(schema)

    def _at(self, schema: dict[str, Any]) -> "Shape":
        """Return the shape of a schema, with what it refers to in place of the reference."""
        while "$ref" in schema:
            own = dict(schema)
            reference = own.pop("$ref")
            name = reference.rsplit("/", 1)[-1]
            schema = {**self.definitions[name], **own}
        return Shape(schema, self.definitions)

    def members(self) -> list["Shape"]:
        """List the alternatives of a plain union without null; a single shape is its only member."""
        alternatives = [self._at(schema) for schema in self.schema.get("anyOf", [])]
        members = [
            shape for shape in alternatives if shape.schema.get("type") != "null"
        ]
        return members or [self]

    def kinds(self) -> dict[str, "Shape"]:
        """Return the alternatives of a union discriminated by `kind`, by name; empty for other shapes."""
        discriminator = self._only().schema.get("discriminator", {})
        mapping = discriminator.get("mapping", {})
        return {
            kind: self._at({"$ref": reference}) for kind, reference in mapping.items()
        }

    def _only(self) -> "Shape":
        """Return the single alternative beside null, or the shape itself."""
        members = self.members()
        return members[0] if len(members) == 1 else self

    def properties(self) -> dict[str, "Shape"]:
        """Return the fields of a dataclass; empty for other shapes."""
        properties = self._only().schema.get("properties", {})
        return {key: self._at(schema) for key, schema in properties.items()}

    def child(self, key: str | int, data: Any) -> "Shape | None":
        """Return the shape under `key`; the `kind` in `data`, the value given here, chooses the alternative."""
        kinds = self.kinds()
        if kinds:
            if not isinstance(data, dict):
                return None
            alternative = kinds.get(str(data.get("kind")))
            return alternative.child(key, data) if alternative else None
        schema = self._only().schema
        if isinstance(key, int):
            child = self._element(schema, key)
        else:
            child = schema.get("properties", {}).get(
                key, schema.get("additionalProperties")
            )
        return self._at(child) if isinstance(child, dict) else None

    @staticmethod
    def _element(schema: dict[str, Any], number: int) -> Any:
        """Return the schema of an element of a list; a tuple's first elements have schemas of their own."""
        first_elements = schema.get("prefixItems", [])
        if number < len(first_elements):
            return first_elements[number]
        return schema.get("items")

    def keys_beneath(self, depth: int = 2) -> Iterator[tuple[str, str]]:
        """Yield the keys of the sections beneath this one, each with its place, as an override names it.

        Args:
            depth: how many sections deep to look.
        """
        for name, child in self.properties().items():
            section, place = child, name
            for member in child.members():
                items = member.schema.get("items")
                if isinstance(items, dict):
                    section, place = self._at(items), f"{name}.0"
            for key in section.properties():
                yield key, f"{place}.{key}"
            if depth > 1:
                for key, inner_place in section.keys_beneath(depth - 1):
                    yield key, f"{place}.{inner_place}"

    def choices(self) -> list[str]:
        """List the literal values allowed here, as written in YAML; empty if any value of a type is allowed."""
        if "const" in self.schema:
            return [_literal(self.schema["const"])]
        return [_literal(value) for value in self.schema.get("enum", [])]


def _literal(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
