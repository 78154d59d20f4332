"""The picture of the package: `python tools/docs/architecture.py docs/images/architecture.svg`.

A box is a folder or module of xmtc. It stands above all that it imports, and lines lead to those that nothing between
them imports (the transitive reduction).
"""

import argparse
import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "xmtc"
WIDTH, HEIGHT, BOX_WIDTH, BOX_HEIGHT = 720, 46, 116, 24
LOWER_INSIDE = ("planting/mig",)
"""Folders that lie lower than the folder they are in, so each has a box of its own."""

Graph = Mapping[str, set[str]]


def imports() -> Graph:
    """Every folder and module at the top, and those that it imports."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        own = box_of(path.relative_to(PACKAGE).with_suffix("").parts)
        if own != "__init__":
            found.setdefault(own, set()).update(set(imported(path)) - {own})
    return found


def box_of(parts: Sequence[str]) -> str:
    """The box of a module, from the parts of its name below the package. All commands share one."""
    if len(parts) == 2 and parts[1] == "commands":
        return "commands"
    inner = "/".join(parts[:2])
    return inner if inner in LOWER_INSIDE else parts[0]


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.startswith("xmtc.")
        ):
            yield box_of(node.module.split(".")[1:])


def below(graph: Graph, name: str) -> set[str]:
    """All that a folder imports, directly or not."""
    return graph[name].union(*(below(graph, other) for other in graph[name]))


def level(graph: Graph, name: str) -> int:
    return 1 + max((level(graph, other) for other in graph[name]), default=-1)


def reduced(graph: Graph) -> Graph:
    """The same order with the fewest lines."""
    return {
        name: {
            one
            for one in others
            if not any(one in below(graph, other) for other in others)
        }
        for name, others in graph.items()
    }


def rows(graph: Graph) -> list[list[str]]:
    """Names by level, the highest first; each row is sorted by where its lines come from, so that fewer cross."""
    levels = {name: level(graph, name) for name in graph}
    placed: dict[str, float] = {}
    ordered = []
    for number in range(max(levels.values()), -1, -1):
        from_above = {
            name: [
                placed[other]
                for other in graph
                if name in graph[other] and other in placed
            ]
            for name in levels
            if levels[name] == number
        }
        row = sorted(
            from_above,
            key=lambda name: (
                sum(from_above[name]) / max(1, len(from_above[name])),
                name,
            ),
        )
        placed |= {name: (at + 1) / (len(row) + 1) for at, name in enumerate(row)}
        ordered.append(row)
    return ordered


def picture() -> str:
    """The picture as SVG."""
    lines = reduced(imports())
    ordered = rows(lines)
    centre = {
        name: (round(WIDTH * (at + 1) / (len(row) + 1)), HEIGHT * number + BOX_HEIGHT)
        for number, row in enumerate(ordered)
        for at, name in enumerate(row)
    }
    drawn = [
        f'<path d="M{x} {y + 12}C{x} {y + 34} {to_x} {to_y - 34} {to_x} {to_y - 12}"/>'
        for name, (x, y) in centre.items()
        for to_x, to_y in (centre[other] for other in sorted(lines[name]))
    ]
    boxes = [
        f'<rect x="{x - BOX_WIDTH // 2}" y="{y - 12}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"/>'
        f'<text x="{x}" y="{y + 4}">{name}</text>'
        for name, (x, y) in centre.items()
    ]
    height = HEIGHT * len(ordered)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            "<title>What each folder of xmtc imports, from top to bottom</title>",
            "<style>path{fill:none;stroke:#98a2b3}rect{fill:#eef2fb;stroke:#3f51b5}",
            "text{font:13px sans-serif;text-anchor:middle;fill:#1f2328}</style>",
            f'<path style="fill:#fff;stroke:none" d="M0 0H{WIDTH}V{height}H0Z"/>',
            *drawn,
            *boxes,
            "</svg>\n",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.parse_args().output.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
