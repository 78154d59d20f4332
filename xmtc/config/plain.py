"""A configuration as plain data: dictionaries for comparison, YAML for people, a hash for fingerprints."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from xmtc.config import yaml_tree
from xmtc.config.shape import adapter

T = TypeVar("T")

_CREDENTIALS = re.compile(r"://[^/@\s'\"]*@")
"""`user:password@` of a URI, with what is before it."""
_SECRET_WORDS = ("token", "key", "secret", "passw", "sig", "credential")
"""A parameter of a URI whose name contains one of these holds a secret."""
_PART = r"[^=&;\s'\"]*"
_SECRET_PARAMETER = re.compile(
    rf"([?&;]{_PART}(?:{'|'.join(_SECRET_WORDS)}){_PART}=)[^&;\s'\"]+",
    re.IGNORECASE,
)


def to_plain(config: Any) -> dict[str, Any]:
    """Convert a configuration to dicts, lists and scalars in the order of the schema, including defaults."""
    return adapter(type(config)).dump_python(config, mode="json")


def dump_yaml(config: Any) -> str:
    """Write the resolved configuration as complete YAML; loading it gives an equal configuration."""
    return yaml_tree.dump(to_plain(config))


def redacted(plain: T) -> T:
    """Replace every credential in the URIs of plain data by `***`: `user:password@`, `?token=…`."""
    changed: Any = plain
    if isinstance(plain, str):
        without_user = _CREDENTIALS.sub("://***@", plain)
        changed = _SECRET_PARAMETER.sub(r"\1***", without_user)
    elif isinstance(plain, Mapping):
        changed = {key: redacted(value) for key, value in plain.items()}
    elif isinstance(plain, list):
        changed = [redacted(value) for value in plain]
    return changed


def config_hash(*parts: Any) -> str:
    """Hash configurations or plain JSON data to 16 hexadecimal digits that change when any part does.

    Use it for a stage's fingerprint: its own section, and the fingerprints of what it reads.
    """
    plain = [
        to_plain(part) if dataclasses.is_dataclass(part) else part for part in parts
    ]
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def flattened(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value that is no section, with its path, such as `data.max_length`."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def changed_settings(
    before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    """Yield each key whose value differs, as `section.key: old -> new`."""
    for key in dict.fromkeys([*before, *after]):
        old = before.get(key)
        new = after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from changed_settings(old, new, f"{prefix}{key}.")
        elif old != new:
            yield f"{prefix}{key}: {json.dumps(old)} -> {json.dumps(new)}"
