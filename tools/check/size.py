"""The size of the house: code lines, files, configuration keys, words, longest sentences: `python tools/check/size.py`.

A code line holds code: blanks, comments and docstrings do not count.
"""

import ast
import io
import re
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
NOT_PROSE = re.compile(r"^ *```.*?^ *```$|^ {4}.*?$|^#.*?$|<!--.*?-->", re.M | re.S)
SENTENCE_END = re.compile(r"(?<=[.!?])\**\s+(?=[^a-z\s])|\n\n|\n\s*(?=[-*] |\d+\. )|\s·\s|(?<!\\)\|")


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


def pages() -> list[Path]:
    """The Markdown pages at the top, in docs/ and in tools/."""
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tools").rglob("*.md")]


def words() -> int:
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages())


def sentences(text: str) -> list[str]:
    """The sentences of a page: of paragraphs, items of lists and cells of tables."""
    return [" ".join(one.split()) for one in SENTENCE_END.split(NOT_PROSE.sub("\n\n", text))]


def longest_sentences() -> list[tuple[int, str, str]]:
    """Words, page and text of every page's longest sentence, the longest first."""
    by_page = {str(page.relative_to(ROOT)): sentences(page.read_text(encoding="utf-8")) for page in pages()}
    longest = {page: max(found, key=lambda sentence: len(sentence.split())) for page, found in by_page.items()}
    return sorted(((len(one.split()), page, one) for page, one in longest.items()), reverse=True)


def lines_by_folder() -> Counter[str]:
    counted: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        counted[path.relative_to(PACKAGE).parts[0]] += code_lines(path.read_text(encoding="utf-8"))
    return counted


def main() -> None:
    by_folder = lines_by_folder()
    for name, lines in by_folder.most_common():
        print(f"{lines:7,} {name}")
    for length, page, sentence in longest_sentences()[:10]:
        print(f"{length:7} words in {page}: {sentence}")
    files = len(list(PACKAGE.rglob("*.py")))
    print(f"xmtc: {by_folder.total():,} code lines, {files} files, {count_keys()} keys; {words():,} words on pages")


if __name__ == "__main__":
    main()
