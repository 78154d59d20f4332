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

_USER = re.compile(r"://[^/@\s'\"]*@")
_SECRET = "token|key|secret|passw|sig|credential"
_QUERY = re.compile(rf"([?&;][^=&;\s'\"]*(?:{_SECRET})[^=&;\s'\"]*=)[^&;\s'\"]+", re.IGNORECASE)


def to_plain(config: Any) -> dict[str, Any]:
    """Convert a configuration to dicts, lists and scalars in the order of the schema, including defaults."""
    return adapter(type(config)).dump_python(config, mode="json")


def dump_yaml(config: Any) -> str:
    """Write the resolved configuration as complete YAML; loading it gives an equal configuration."""
    return yaml_tree.dump(to_plain(config))


def redacted(plain: T) -> T:
    """Replace every credential in a URI by `***`: `user:password@`, `?token=…`."""
    changed: Any = plain
    if isinstance(plain, str):
        changed = _QUERY.sub(r"\1***", _USER.sub("://***@", plain))
    elif isinstance(plain, Mapping):
        changed = {key: redacted(value) for key, value in plain.items()}
    elif isinstance(plain, list):
        changed = [redacted(value) for value in plain]
    return changed


def config_hash(*parts: Any) -> str:
    """Hash configurations or plain JSON data to 16 hexadecimal digits that change when any part does.

    Use it for a stage's fingerprint: its own section, and the fingerprints of what it reads.
    """
    plain = [to_plain(part) if dataclasses.is_dataclass(part) else part for part in parts]
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def flattened(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value that is no section, with its path, such as `data.max_length`."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def changed_settings(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield each key whose value differs, as `section.key: old -> new`."""
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from changed_settings(old, new, f"{prefix}{key}.")
        elif old != new:
            yield f"{prefix}{key}: {json.dumps(old)} -> {json.dumps(new)}"
