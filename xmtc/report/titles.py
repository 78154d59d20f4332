"""What the page calls labels, and in which order it lists names."""

from collections.abc import Iterable


def label_title(label: str, name: str) -> str:
    """Return a label with its name, if it has one."""
    return label if name == label else f"{label} ({name})"


def union(names: Iterable[Iterable[str]]) -> list[str]:
    """List every name once, in the order in which they first occur."""
    return list(dict.fromkeys(name for group in names for name in group))
