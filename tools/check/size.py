"""The size of the house: code lines, files, configuration keys, words: `python tools/check/size.py`.

A code line holds code: blanks, comments and docstrings do not count.
"""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
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


def code_lines(source: str) -> int:
    """Lines of a module with code on them."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for token in tokens if token.type not in NO_CODE for line in range(token.start[0], token.end[0] + 1)}
    return len(lines - documentation(ast.parse(source)))


def documentation(tree: ast.Module) -> set[int]:
    """Lines of docstrings, and of texts beneath fields."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def settings_classes() -> Iterator[tuple[Path, dict[str, list[str]]]]:
    """The keys of every class that `@config` decorates, by module and class."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = {node.name: keys(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and is_config(node)}
        if found:
            yield path, found


def is_config(node: ast.ClassDef) -> bool:
    return "config" in [ast.unparse(decorator) for decorator in node.decorator_list]


def keys(node: ast.ClassDef) -> list[str]:
    annotated = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    return [ast.unparse(item.target) for item in annotated if not ast.unparse(item.annotation).startswith("ClassVar")]


def count_keys() -> int:
    return sum(len(names) for _, found in settings_classes() for names in found.values())


def words() -> int:
    """Words of the Markdown pages at the top and in docs/."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def lines_by_folder() -> Counter[str]:
    counted: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        counted[path.relative_to(PACKAGE).parts[0]] += code_lines(path.read_text(encoding="utf-8"))
    return counted


def main() -> None:
    by_folder = lines_by_folder()
    for name, lines in by_folder.most_common():
        print(f"{lines:7,} {name}")
    files = len(list(PACKAGE.rglob("*.py")))
    print(f"xmtc: {by_folder.total():,} code lines, {files} files, {count_keys()} keys; {words():,} words on pages")


if __name__ == "__main__":
    main()
