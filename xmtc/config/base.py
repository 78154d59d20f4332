"""The marker that every configuration dataclass carries."""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

from pydantic import ConfigDict

T = TypeVar("T")

_STRICT = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False)


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
