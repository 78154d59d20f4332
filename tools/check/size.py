"""The size of the house, room by room, as information: `python tools/check/size.py`. Nothing is limited by it.

For each folder of the package it prints code lines, tokens, tokens a line, how often statements are packed, and
configuration keys, and for the pages their words. A code line holds code: blanks, comments and docstrings do not count.
Tokens are Python's own, without those of layout; projects that are pleasant to read have 6 to 8 of them in a line.
"""

import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "xmtc"
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass
class Size:
    """How large a piece of code is.

    Attributes:
        files: modules.
        lines: lines with code on them.
        tokens: Python's tokens on these lines.
        packed: assignments of several unrelated values, comprehensions inside another, and walruses.
        keys: configuration keys.
    """

    files: int = 0
    lines: int = 0
    tokens: int = 0
    packed: int = 0
    keys: int = 0

    def __add__(self, other: "Size") -> "Size":
        return Size(
            self.files + other.files,
            self.lines + other.lines,
            self.tokens + other.tokens,
            self.packed + other.packed,
            self.keys + other.keys,
        )


def size_of(source: str) -> Size:
    """Measure one module."""
    tree = ast.parse(source)
    docstring_lines = documentation(tree)
    tokens = [
        token for token in code_tokens(source) if token.start[0] not in docstring_lines
    ]
    lines: set[int] = set()
    for token in tokens:
        lines.update(range(token.start[0], token.end[0] + 1))
    key_count = sum(
        len(keys(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and is_config(node)
    )
    return Size(1, len(lines), len(tokens), packed_statements(tree), key_count)


def code_tokens(source: str) -> list[tokenize.TokenInfo]:
    """The tokens of a module, without comments and layout."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [token for token in tokens if token.type not in NO_CODE]


def documentation(tree: ast.Module) -> set[int]:
    """Lines of docstrings, and of texts beneath fields."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def packed_statements(tree: ast.Module) -> int:
    """Count assignments such as `a, b = f(), g()`, comprehensions inside comprehensions, and walruses."""
    comprehensions = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            count += isinstance(node.value, ast.Tuple) and isinstance(
                node.targets[0], ast.Tuple
            )
        elif isinstance(node, ast.NamedExpr):
            count += 1
        elif isinstance(node, comprehensions):
            count += any(
                isinstance(inner, comprehensions)
                for inner in ast.walk(node)
                if inner is not node
            )
    return count


def settings_classes() -> Iterator[tuple[Path, dict[str, list[str]]]]:
    """The keys of every class that `@config` decorates, by module and class."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        classes = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and is_config(node)
        ]
        if classes:
            yield path, {node.name: keys(node) for node in classes}


def is_config(node: ast.ClassDef) -> bool:
    return "config" in [ast.unparse(decorator) for decorator in node.decorator_list]


def keys(node: ast.ClassDef) -> list[str]:
    annotated = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    return [
        ast.unparse(item.target)
        for item in annotated
        if not ast.unparse(item.annotation).startswith("ClassVar")
    ]


def pages() -> list[Path]:
    """The Markdown pages at the top, in docs/ and in tools/."""
    return [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "tools").rglob("*.md"),
    ]


def words_by_folder() -> dict[str, int]:
    """Words on the pages, by the folder that holds them."""
    words: dict[str, int] = defaultdict(int)
    for page in pages():
        words[str(page.parent.relative_to(ROOT))] += len(
            page.read_text(encoding="utf-8").split()
        )
    return words


def sizes_by_room() -> dict[str, Size]:
    """The size of every folder of the package, and of each module that lies in none."""
    sizes: dict[str, Size] = defaultdict(Size)
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0]
        sizes[room] += size_of(path.read_text(encoding="utf-8"))
    return sizes


def row(name: str, size: Size) -> str:
    tokens_a_line = size.tokens / max(size.lines, 1)
    return (
        f"{name:18} {size.files:5} {size.lines:7,} {size.tokens:8,} {tokens_a_line:13.2f} "
        f"{1000 * size.packed / max(size.lines, 1):19.1f} {size.keys:5}"
    )


def main() -> None:
    columns = f"{'files':>5} {'lines':>7} {'tokens':>8} {'tokens a line':>13} {'packed, per 1,000':>19} {'keys':>5}"
    print(f"{'room':18} {columns}")
    sizes = sizes_by_room()
    for room in sorted(sizes, key=lambda room: -sizes[room].lines):
        print(row(room, sizes[room]))
    print(row("xmtc", sum(sizes.values(), Size())))
    words = words_by_folder()
    print(f"\nwords on pages: {sum(words.values()):,}")
    for folder, count in sorted(words.items(), key=lambda item: -item[1]):
        print(f"{count:7,} {folder}")


if __name__ == "__main__":
    main()
