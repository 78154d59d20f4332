"""The marker that every configuration dataclass carries."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeVar, dataclass_transform

from pydantic import ConfigDict

T = TypeVar("T")

_STRICT = ConfigDict(
    extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False
)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def config(cls: type[T]) -> type[T]:
    """Make `cls` a frozen, keyword-only dataclass that pydantic validates strictly, unknown keys forbidden.

    Document each field with a string literal beneath it; `docs/reference/configuration.md` is generated from these.
    Checks across fields go into `__post_init__` and raise ValueError. A family of alternatives (readers, heads,
    losses …) is a union discriminated by a `kind: Literal["…"]` field, with one `build`-style method each, so that
    nothing else branches on the kind.
    """
    cls.__pydantic_config__ = _STRICT  # pyright: ignore[reportAttributeAccessIssue]
    return dataclass(frozen=True, kw_only=True)(cls)


def keys_beyond_defaults(settings: Any, names: Collection[str]) -> Iterator[str]:
    """Yield those of the named keys whose values are not their defaults.

    A resolved configuration has all keys, so it cannot say which of them the user wrote.
    """
    for key in fields(settings):
        value = getattr(settings, key.name)
        if key.name in names and value != key.default:
            yield key.name
