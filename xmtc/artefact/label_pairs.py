"""Command-line arguments for renaming and merging labels: `OLD=NEW`, `KEPT=OTHER,OTHER`, or a file with tabs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from xmtc.data.readers.base import quoted_label
from xmtc.data.readers.files import open_text
from xmtc.errors import DataError


def read_renames(entries: Sequence[str]) -> dict[str, str]:
    """Read new labels by old label.

    Args:
        entries: `OLD=NEW`, or `@FILE` with OLD, a tab and NEW per line, for labels with an equals sign.

    Raises:
        DataError: an entry or line has another form, or a label occurs twice; names it.
    """
    names: dict[str, str] = {}
    for where, cells in _rows(entries, ()):
        if len(cells) != 2:
            raise DataError(f"{where}: give an old and a new label, such as OLD=NEW")
        if cells[0] in names:
            raise DataError(f"{where}: label {quoted_label(cells[0])} is renamed twice; leave one out")
        names[cells[0]] = cells[1]
    return names


def read_groups(entries: Sequence[str]) -> dict[str, list[str]]:
    """Read the labels to merge, by the label that is kept.

    Args:
        entries: `KEPT=OTHER,OTHER`, or `@FILE` with these labels on each line, separated by tabs.

    Raises:
        DataError: an entry or line has another form; names it.
    """
    groups: dict[str, list[str]] = {}
    for where, cells in _rows(entries, (",",)):
        if len(cells) < 2:
            raise DataError(
                f"{where}: give the label to keep and the labels to merge into it, such as KEPT=OTHER,OTHER"
            )
        groups.setdefault(cells[0], []).extend(cells[1:])
    return groups


def _rows(entries: Sequence[str], separators: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Yield each row's place, for messages, and its labels."""
    for entry in entries:
        if entry.startswith("@"):
            yield from _rows_of(Path(entry[1:]))
            continue
        first, equals, rest = entry.partition("=")
        cells = rest.split(separators[0]) if separators else [rest]
        if not equals or not all(cell.strip() for cell in (first, *cells)) or (not separators and "=" in rest):
            raise DataError(
                f"{quoted_label(entry)}: not OLD=NEW or KEPT=OTHER,OTHER; give labels that contain = or a comma in a "
                "file, @FILE, separated by tabs"
            )
        yield quoted_label(entry), [first, *cells]


def _rows_of(path: Path) -> Iterator[tuple[str, list[str]]]:
    with open_text(path) as lines:
        rows = [(f"{path}:{number}", line.strip("\r\n").split("\t")) for number, line in enumerate(lines, start=1)]
    rows = [(where, [cell.strip() for cell in cells]) for where, cells in rows if any(cell.strip() for cell in cells)]
    if not rows:
        raise DataError(f"{path}: has no labels; write labels that belong together on one line, separated by tabs")
    for where, cells in rows:
        if not all(cells):
            raise DataError(f"{where}: an empty label; separate labels by one tab")
    yield from rows
