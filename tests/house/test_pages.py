"""What the pages tell a reader to type works.

Every command on a page, in a block or within a sentence, names commands, options, tools, files and configuration keys
that exist. `sh` and `python` blocks also run, in a folder with a tiny trained model, unless a comment above the block
says why they cannot:

    <!-- not run: it needs a cluster -->

The commands of benchmark pages take minutes to hours: they are checked and not run. YAML on pages is checked against
the configuration's schema, and JSON is parsed. Not covered: TOML and CSV, output shown as `text`, and options of
programs that are not part of xmtc. Links to headings are checked here, links to files in `test_house.py`.
"""

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import matplotlib.pyplot
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.main
import yaml

import architecture
import cli_reference
import tiny_runs
from xmtc import pipeline
from xmtc.cli import app
from xmtc.config.load import load_config
from xmtc.desk.config import read_tuning
from xmtc.run.config import RunConfig
from xmtc.sweep.config import SweepConfig

ROOT = Path(__file__).parents[2]
HISTORY_AND_GENERATED = ("CHANGELOG.md", "log.md", "configuration.md", "cli.md")
RECIPES = "CONTRIBUTING.md"  # its Python, TOML and YAML run in test_recipes.py
WRITTEN_AND_GENERATED = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in WRITTEN_AND_GENERATED
    if path.name not in HISTORY_AND_GENERATED
}
READ, MEASURED = (
    [page for page in PAGES if "benchmarks" not in page],
    [page for page in PAGES if "benchmarks" in page],
)
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<why>[^\n]+?) -->\n\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
INDENTED = re.compile(r"^(?: {4}.*\n)+", re.M)
INLINE = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#+ (.+)$", re.M)
TO_HEADING = re.compile(r"\]\(([^)#:\s]*)#([^)\s]+)\)")
PROGRAM = re.compile(
    r"(?:\.venv/bin/)?(xmtc|python|make|pip|(?:tools|launch)/\S+\.(?:py|sh))(?: |$)"
)
LANGUAGES = {"sh", "python", "yaml", "json", "toml", "csv", "text"}
BASE = (
    ROOT / "configs/eurlex57k_minilm.yaml"
)  # YAML on pages shows some keys: these are laid over a whole file


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    code: str
    runs: bool


def blocks(page: str, language: str | None = None) -> list[Block]:
    text = PAGES[page].read_text(encoding="utf-8")
    found = [
        Block(one["language"], one["code"], one["why"] is None)
        for one in BLOCK.finditer(text)
    ]
    return [block for block in found if language in (None, block.language)]


def pages_with(language: str, *, run: bool) -> list[str]:
    return [
        page
        for page in READ
        if any(block.runs or not run for block in blocks(page, language))
    ]


def lines(code: str) -> Iterator[list[str]]:
    """The commands of a shell block, as a shell would split them; quotes and backslashes join lines."""
    begun = ""
    for line in code.splitlines():
        begun += line
        if begun.endswith("\\"):
            begun = begun[:-1]
            continue
        try:
            words = shlex.split(begun, comments=True)
        except ValueError:
            continue  # an open quote
        begun = ""
        if words:
            yield words
    assert not begun, begun


def indented(page: str) -> list[list[str]]:
    """Commands in indented blocks."""
    rest = BLOCK.sub("", PAGES[page].read_text(encoding="utf-8"))
    chunks = [
        "".join(line[4:] for line in one[0].splitlines(True))
        for one in INDENTED.finditer(rest)
    ]
    return [words for chunk in chunks if PROGRAM.match(chunk) for words in lines(chunk)]


def typed(page: str, program: str) -> list[list[str]]:
    """The arguments of a program wherever a page names it: in `sh` blocks, indented blocks and sentences."""
    rest = BLOCK.sub("", PAGES[page].read_text(encoding="utf-8"))
    inline = [
        shlex.split(one[1]) for one in INLINE.finditer(rest) if PROGRAM.match(one[1])
    ]
    fenced = [words for block in blocks(page, "sh") for words in lines(block.code)]
    return [
        words[1:]
        for words in [*fenced, *indented(page), *inline]
        if words[0].removeprefix(".venv/bin/") == program
    ]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages name: two finished runs, a corpus, documents and lists of labels."""
    folder = tmp_path_factory.mktemp("pages")
    config = tiny_runs.write_config(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        pipeline.train_run(
            tiny_runs.load(
                config,
                "name=quickstart",
                "data.corpus=corpora/quickstart",
                "track.directory=runs",
            )
        )
    for name in ("news", "smoke_llama"):
        shutil.copytree(folder / "runs/quickstart", folder / "runs" / name)
    (folder / "configs").symlink_to(ROOT / "configs")
    rows = tiny_runs.documents(8, first=200)
    for number, path in enumerate(
        ("notes.parquet", "notes/a.parquet", "more/b.parquet")
    ):
        (folder / path).parent.mkdir(exist_ok=True)
        ids = [str(4711 + 100 * number + row) for row in range(len(rows))]
        pq.write_table(
            pa.table({"note_id": ids, "text": [row["text"] for row in rows]}),
            folder / path,
        )
    (folder / "obsolete.txt").write_text("steel\n")
    (folder / "names.tsv").write_text("heart\tcardiology\n")
    (folder / "groups.tsv").write_text("heart\tsteel\n")
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_exist(page: str) -> None:
    known = dict(cli_reference.commands("xmtc", typer.main.get_command(app)))
    groups = {" ".join(name.split()[:-1]) for name in known}
    for words in typed(page, "xmtc"):
        path = [word for word in words[:2] if re.fullmatch(r"[a-z]+", word)]
        is_group = " ".join(["xmtc", *path[:1]]) in groups
        name = " ".join(["xmtc", *path[: 2 if is_group else 1]])
        assert name in {*known, *groups}, f"{page}: no command {name}"
        options = {
            option
            for parameter in getattr(known.get(name), "params", ())
            for option in parameter.opts
        }
        found = {
            word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)
        }
        assert found <= {*options, "--help", "--version"}, (
            f"{page}: {name} has no {sorted(found - options)}"
        )


@pytest.mark.parametrize("page", PAGES)
def test_configurations_and_keys_exist(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for command, first, *rest in [words for words in typed(page, "xmtc") if words[1:]]:
        keys = [word for word in rest if re.match(r"[a-z_0-9.]+=", word)]
        if command in ("prepare", "mig", "train", "sweep") and first.startswith(
            "configs/"
        ):
            load_config(RunConfig, Path(first), keys)
        if command == "serve":
            read_tuning(keys)


@pytest.mark.parametrize("page", PAGES)
def test_tools_targets_tests_and_extras_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    scripts = set(
        re.findall(
            r"(?:tools/\w+|launch)/\w+\.(?:py|sh)",
            PAGES[page].read_text(encoding="utf-8"),
        )
    )
    commands = [
        *typed(page, "python"),
        *([name, *words] for name in sorted(scripts) for words in typed(page, name)),
    ]
    for script, *arguments in commands:
        if script == "-m":
            arguments = [
                argument for argument in arguments if argument.startswith("tests/")
            ]
            script = arguments[0] if arguments else "tests"
        path, _, test = script.partition("::")
        source = (ROOT / path).read_text(encoding="utf-8")
        assert test in source, f"{page}: {script}"
        unknown = [
            word for word in arguments if word.startswith("--") and word not in source
        ]
        assert unknown == [], f"{page}: {script} has no {unknown}"
    for target, *_ in typed(page, "make"):
        assert f"\n{target}:" in makefile, f"{page}: make {target}"
    for word in [
        word
        for words in typed(page, "pip")
        for word in words
        if word.startswith("xmtc[")
    ]:
        assert word[5:-1] in project["optional-dependencies"], f"{page}: {word}"


@pytest.mark.parametrize("page", READ)
def test_a_command_runs_or_the_page_says_why_not(page: str) -> None:
    """Commands stand in `sh` blocks, and a block without a reason holds only commands that `test_commands_run` runs."""
    assert {block.language for block in blocks(page)} <= LANGUAGES
    assert indented(page) == [], (
        f"{page}: put commands into a block that begins with ```sh"
    )
    words = [
        words
        for block in blocks(page, "sh")
        if block.runs
        for words in lines(block.code)
    ]
    others = [line for line in words if line[0] not in ("xmtc", "tail")]
    assert others == [], f"{page}: say above the block why these are not run"


def test_benchmark_pages_say_why_their_commands_do_not_run() -> None:
    page = " ".join(
        (ROOT / "docs/benchmarks/index.md").read_text(encoding="utf-8").split()
    )
    assert "Tests check these commands, but do not run them" in page


@pytest.mark.parametrize("page", pages_with("sh", run=True))
def test_commands_run(
    page: str, workspace: Path, xmtc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    for program, *words in [
        line for block in blocks(page, "sh") if block.runs for line in lines(block.code)
    ]:
        if program == "tail":
            subprocess.run(
                [program, *words], check=True, capture_output=True, timeout=10
            )
            continue
        outcome = xmtc(*words)
        assert outcome.code == 0, f"{page}: xmtc {shlex.join(words)}\n{outcome.err}"


@pytest.mark.parametrize(
    "page", [page for page in pages_with("python", run=True) if page != RECIPES]
)
def test_examples_run(
    page: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    for block in blocks(page, "python"):
        if block.runs:
            exec(compile(block.code, page, "exec"), {})


@pytest.mark.parametrize(
    "notebook",
    sorted((ROOT / "docs/notebooks").glob("*.ipynb")),
    ids=lambda path: path.stem,
)
def test_notebooks_run(
    notebook: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their cells run one after another, in this process: a kernel would take longer than the cells."""
    monkeypatch.chdir(workspace)
    matplotlib.use("agg")
    names: dict[str, object] = {}
    for number, cell in enumerate(
        json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    ):
        if cell["cell_type"] == "code" and "not-run" not in cell["metadata"].get(
            "tags", []
        ):
            exec(
                compile(
                    "".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"
                ),
                names,
            )
    for axes in (
        axes
        for number in matplotlib.pyplot.get_fignums()
        for axes in matplotlib.pyplot.figure(number).axes
    ):
        places = [bar.get_xy() for bar in axes.patches]
        assert len(set(places)) == len(places), (
            "a bar hides another, such as that of a word that occurs twice"
        )
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize(
    "page", [page for page in pages_with("yaml", run=False) if page != RECIPES]
)
def test_yaml_on_pages_is_a_configuration(page: str, tmp_path: Path) -> None:
    for block in blocks(page, "yaml"):
        shown = yaml.safe_load(block.code)
        if "grid" in shown or "draw" in shown:
            file = ROOT / block.code.splitlines()[0].removeprefix("# ")
            assert shown == yaml.safe_load(file.read_text(encoding="utf-8"))
            continue
        path = tmp_path / "shown.yaml"
        if "draw" in shown:
            path.write_text(block.code, encoding="utf-8")
            load_config(SweepConfig, path)
            continue
        path.write_text(f"base: {BASE}\n{block.code}", encoding="utf-8")
        load_config(RunConfig, path)


@pytest.mark.parametrize("page", pages_with("json", run=False))
def test_json_on_pages_is_json(page: str) -> None:
    for block in blocks(page, "json"):
        json.loads(block.code)


@cache
def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings that are the same on GitHub and on the site, which shortens runs of hyphens."""
    text = BLOCK.sub("", path.read_text(encoding="utf-8"))
    headings = [
        re.sub(r"\]\([^)]*\)", "", heading.lower()) for heading in HEADING.findall(text)
    ]
    slugs = [
        re.sub(r"[^\w -]", "", heading).strip().replace(" ", "-")
        for heading in headings
    ]
    return {slug for slug in slugs if slug.isascii() and "--" not in slug}


@pytest.mark.parametrize(
    "path", WRITTEN_AND_GENERATED, ids=lambda path: str(path.relative_to(ROOT))
)
def test_links_lead_to_headings(path: Path) -> None:
    found = TO_HEADING.findall(path.read_text(encoding="utf-8"))
    linked = [
        (link, anchor) for link, anchor in found if link.endswith(".md") or not link
    ]
    broken = [
        f"{link}#{one}"
        for link, one in linked
        if one not in anchors(path.parent / (link or path.name))
    ]
    assert broken == [], f"{path.name}: no such heading"


def test_the_reference_of_the_command_line_is_current() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    assert page == cli_reference.page(), "run `make docs`"
    for name, command in cli_reference.commands("xmtc", typer.main.get_command(app)):
        described = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
        options = {
            one.opts[0]
            for one in command.params
            if cli_reference.is_shown(one, "option")
        } - {"--print-config"}
        assert options <= set(re.findall(r"`(--[a-z-]+)", described)), (
            f"{name}: an option is missing"
        )


def test_the_picture_of_the_folders_is_current() -> None:
    drawn = (ROOT / "docs/images/architecture.svg").read_text(encoding="utf-8")
    assert drawn == architecture.picture(), "run `make docs`"
    assert [name for name in architecture.imports() if f">{name}<" not in drawn] == []


HOW_TO = [page for page in READ if "how-to" in page]


@pytest.mark.parametrize("page", HOW_TO)
def test_a_how_to_begins_with_its_command(page: str) -> None:
    """A reader with a deadline finds what to type beneath the title, not after a section of explanations."""
    before, fence, after = PAGES[page].read_text(encoding="utf-8").partition("```")
    assert fence, page
    assert "\n## " not in before, (
        f"{page}: its first section comes before its first command"
    )
    assert after.startswith(("sh\n", "python\n")), (
        f"{page}: another block comes before its first command"
    )


def test_every_public_name_has_a_page() -> None:
    import xmtc

    table = (ROOT / "docs/reference/python/index.md").read_text(encoding="utf-8")
    assert [
        name for name in xmtc.__all__ if name not in table and name != "__version__"
    ] == []
