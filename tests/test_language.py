"""Plain English: phrases that read as translated stay out of pages, help, docstrings, messages and comments."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from test_imports import MODULES, ROOT

COUNTED = (
    r"documents?|labels?|tokens?|bytes|rows?|lines?|pages?|times?|seconds|ms|[MGK]i?B|files?|numbers?|queries|steps?"
    r"|actors?|columns?|words?|texts?|processes|vectors?|GPUs?|cores?"
)
UNIT = (
    "second|minute|hour|day|step|epoch|batch|micro-batch|split|run|file|row|line|page|block|shard|document|text|token"
    "|word|label|head|layer|worker|rank|node|host|GPU|core|thread|process|query|request|number|element"
)
TICS = {
    rf"(?<!without training )(?<!how many )(?<!which )(?<!each )\b(?:{COUNTED}) an? (?:{UNIT})\b": (
        "write 'per': 'documents per second'"
    ),
    r"\bin place of\b": "write 'instead of'",
    r"\bbesides?\b": "write 'next to', 'in addition to' or 'also'",
    r"\bas of\b": "write 'from' or 'since'",
    r"\b(?:go|goes|going|went|gone)\s+on\b": "write 'continue'",
    r"\bmend(?:s|ed|ing)?\b": "write 'fix'",
    r"\breckon(?:s|ed|ing)?\b": "write 'estimate' or 'count'",
    r"\banew\b": "write 'again'",
    r"\bupon\b": "write 'on'",
    r"\b(?:of which|which [\w -]{1,40} has not)\b(?! been)": "start a new sentence: 'X does not have Y'",
    r"\b(?:is|are) welcome\b": "write 'is accepted'",
    r"\bone alone\b": "write 'only one'",
    r"\bat once, without\b": "write 'immediately'",
    r"\bthe (?:more|less|larger|fewer|longer|higher)\b[^.;|]{1,60}, the (?:more|less|larger|fewer|longer|better)\b": (
        "give the rule: 'a large K lowers the variance'"
    ),
    r"\b(?:thereof|therein|thereby|hereby|whereof|wherein|whereby|hitherto|henceforth)\b": "start a new sentence",
    r"\bseldom\b": "write 'rarely'",
    r"\bspeaks? (?:for|against)\b": "write 'supports', 'opposes' or 'marks'",
    r"\bof (?:its|their) own\b": "write 'separate', or leave it out",
    r"\b(?-i:METHOD):|\bsee DESIGN\b": "name the source or a page of docs/",
    r"\bis told (?:from|by)\b|\btold apart\b": "write 'distinguish' or 'infer'",
}
"""Phrases, and what to write instead."""
PROSE = ("COMMENT", "STRING", "FSTRING_MIDDLE")  # the last one since Python 3.12

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "mkdocs.yml")),
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name != "log.md"),  # dated notes stay as written
    *(path for folder in ("configs", "launch") for path in sorted((ROOT / folder).rglob("*")) if path.is_file()),
]


def tics(text: str) -> Iterator[str]:
    """What is wrong in a text: the words around each phrase, and what to write instead."""
    flat = re.sub(r"\s*\n[ #>]*", " ", re.sub(r"\n[ #]*\n", "\n¶ ", text))
    for pattern, advice in TICS.items():
        for found in re.finditer(pattern, flat, re.IGNORECASE):
            yield f"{flat[max(0, found.start() - 40) : found.end() + 20]!r}: {advice}"


def words_of(path: Path) -> str:
    """A module's comments and strings."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    return "\n".join(token.string for token in tokens if tokenize.tok_name[token.type] in PROSE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_plain_english(page: Path) -> None:
    prose = re.sub(r"^```python\n.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert list(tics(prose)) == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_modules_are_plain_english(module: str) -> None:
    assert list(tics(words_of(MODULES[module]))) == []


@pytest.mark.parametrize("tool", sorted((ROOT / "tools").rglob("*.py")), ids=lambda tool: tool.stem)
def test_tools_are_plain_english(tool: Path) -> None:
    assert list(tics(words_of(tool))) == []


def test_the_search_finds_tics() -> None:
    found = list(tics("One page a split, written\nanew. The run goes\non. Labels without training documents a row"))
    assert [advice.split("write ")[1][:6] for advice in found] == ["'per':", "'conti", "'again"]
