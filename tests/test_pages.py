"""What the pages tell a reader to type works.

Every command on a page names commands, options, files and configuration keys that exist. `xmtc` commands and Python
examples also run, in a folder with a tiny trained model, unless a comment above the block says why they cannot:

    <!-- not run: it needs a cluster -->
"""

import json
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import typer.main
import yaml

import cli_reference
import tiny_runs
from xmtc import pipeline
from xmtc.cli import app
from xmtc.config.load import load_config
from xmtc.run.config import RunConfig
from xmtc.serve.config import read_tuning

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if path.name not in ("log.md", "configuration.md", "cli.md") and "benchmarks" not in path.parts
}
BLOCK = re.compile(r"(?:<!-- not run: (?P<why>[^\n]+?) -->\n\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    code: str
    runs: bool

    def commands(self, name: str = "xmtc") -> list[list[str]]:
        """The arguments of one program's commands in a shell block, as a shell would split them."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(f"{name} ")]


def blocks(page: str, language: str) -> list[Block]:
    text = PAGES[page].read_text(encoding="utf-8")
    found = [Block(one["language"], one["code"], one["why"] is None) for one in BLOCK.finditer(text)]
    return [block for block in found if block.language == language]


def pages_with(language: str, *, run: bool) -> list[str]:
    return [page for page in PAGES if any(block.runs or not run for block in blocks(page, language))]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages name: two finished runs, a corpus, documents and lists of labels."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("pages")
    config = tiny_runs.write_config(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("xmtc.data.parallel.cpu_count", lambda: 1)
        pipeline.train_run(
            tiny_runs.load(config, "name=quickstart", "data.corpus=corpora/quickstart", "track.directory=runs")
        )
    for name in ("news", "smoke_llama"):
        shutil.copytree(folder / "runs/quickstart", folder / "runs" / name)
    (folder / "configs").symlink_to(ROOT / "configs")
    rows = tiny_runs.documents(8, first=200)
    for number, path in enumerate(("notes.parquet", "notes/a.parquet", "more/b.parquet")):
        (folder / path).parent.mkdir(exist_ok=True)
        ids = [str(4711 + 100 * number + row) for row in range(len(rows))]
        pq.write_table(pa.table({"note_id": ids, "text": [row["text"] for row in rows]}), folder / path)
    (folder / "obsolete.txt").write_text("steel\n")
    (folder / "names.tsv").write_text("heart\tcardiology\n")
    (folder / "groups.tsv").write_text("heart\tsteel\n")
    return folder


@pytest.mark.parametrize("page", pages_with("sh", run=False))
def test_commands_and_options_exist(page: str) -> None:
    known = dict(cli_reference.commands("xmtc", typer.main.get_command(app)))
    for words in [words for block in blocks(page, "sh") for words in block.commands()]:
        name = "xmtc " + " ".join(words[: 2 if words[0] == "labels" else 1])
        assert name in known, f"{page}: no command {name}"
        options = {option for parameter in known[name].params for option in parameter.opts}
        unknown = [
            word for word in words if word.startswith("-") and word.partition("=")[0] not in {*options, "--help"}
        ]
        assert unknown == [], f"{page}: {name} has no {unknown}"


@pytest.mark.parametrize("page", pages_with("sh", run=False))
def test_configurations_and_keys_exist(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for command, first, *rest in [words for block in blocks(page, "sh") for words in block.commands() if words[1:]]:
        keys = [word for word in rest if re.match(r"[a-z_.]+=", word)]
        if command in ("prepare", "mig", "train", "sweep") and first.startswith("configs/"):
            load_config(RunConfig, Path(first), keys)
        if command == "serve":
            read_tuning(keys)


@pytest.mark.parametrize("page", pages_with("sh", run=False))
def test_tools_and_make_targets_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for block in blocks(page, "sh"):
        for script, *arguments in block.commands("python"):
            source = (ROOT / script).read_text(encoding="utf-8")
            assert [word for word in arguments if word.startswith("--") and f'"{word}"' not in source] == []
        for target, *_ in block.commands("make"):
            assert f"\n{target}:" in makefile, f"{page}: make {target}"


@pytest.mark.parametrize("page", pages_with("sh", run=True))
def test_commands_run(page: str, workspace: Path, xmtc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)
    for words in [words for block in blocks(page, "sh") if block.runs for words in block.commands()]:
        outcome = xmtc(*words)
        assert outcome.code == 0, f"{page}: xmtc {shlex.join(words)}\n{outcome.err}"


@pytest.mark.parametrize("page", pages_with("python", run=True))
def test_examples_run(page: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)
    for block in blocks(page, "python"):
        if block.runs:
            exec(compile(block.code, page, "exec"), {})


@pytest.mark.parametrize("notebook", sorted((ROOT / "docs/notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run(notebook: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their cells run one after another, in this process: a kernel would take longer than the cells."""
    monkeypatch.chdir(workspace)
    matplotlib.use("agg")
    names: dict[str, object] = {}
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code" and "not-run" not in cell["metadata"].get("tags", []):
            exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize("page", pages_with("yaml", run=False))
def test_yaml_on_pages_is_yaml(page: str) -> None:
    for block in blocks(page, "yaml"):
        assert isinstance(yaml.safe_load(block.code), dict)


@pytest.mark.parametrize("page", pages_with("json", run=False))
def test_json_on_pages_is_json(page: str) -> None:
    for block in blocks(page, "json"):
        json.loads(block.code)


def test_the_reference_of_the_command_line_is_current() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    assert page == cli_reference.page(), "run `make docs`"


def test_every_public_name_has_a_page() -> None:
    import xmtc

    table = (ROOT / "docs/reference/python/index.md").read_text(encoding="utf-8")
    assert [name for name in xmtc.__all__ if name not in table and name != "__version__"] == []
