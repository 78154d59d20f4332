"""The pictures of the documentation, made again from a small run: `make gallery`.

    PYTHONPATH=tests/support python tools/docs/gallery.py docs/images/gallery [--year DIR]

trains the quickstart's model on 2,000 docstrings (10 minutes on two idle cores). It then takes the report, the evidence
page and the annotation page in a headless Chromium, and the dry run, the training log and the sweep's table from the
terminal. With --year, the folder of tools/check/a_year.py, it trains nothing, and takes the pictures of a model in use.
"""

import argparse
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from PIL import Image
from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

from browser import Browser, find_browser

ROOT = Path(__file__).parents[2]
XMTC = (sys.executable, "-c", "from xmtc.cli import main; main()")
CONFIG = str(ROOT / "configs/quickstart.yaml")
SOURCE = "data.source={kind: pydocs, packages: [numpy, scipy, sklearn]}"
SIZE = "data.limit={train: 2000, dev: 250, test: 250}"
TEXT = "Return the eigenvalues and eigenvectors of a symmetric sparse matrix, computed by the Lanczos method."
PENALTIES = [[{"kind": "linear", "penalty": penalty}] for penalty in (0.03, 0.1, 0.3)]
GRID = {"grid": {"model.scorers": PENALTIES}, "metrics": ["ndcg@5", "macro_f1"]}

IN_USE = {  # page of a year, what to begin with, and the height
    "release": ("runs/first/eval/dev/report.html", "#decisions .charts", 420),
    "people": ("people.html", "#results", 640),
    "drift": ("clinical.html", "#results", 760),
    "diff": ("diff_rest.html", "#results", 1170),
}

FIRST_LABEL = """(() => {
  const place = document.querySelector("section").getBoundingClientRect()
  return [place.left, place.top, place.right, place.bottom].map(Math.round)
})()"""
"""Left, top, right and bottom of the first label on the evidence page."""


def main() -> None:
    """Make every picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument(
        "--work",
        type=Path,
        help="folder for the runs, to use them again [a temporary one]",
    )
    parser.add_argument("--year", type=Path, help="folder of tools/check/a_year.py")
    arguments = parser.parse_args()
    work = (arguments.work or Path(tempfile.mkdtemp(prefix="gallery-"))).resolve()
    output = arguments.output.resolve()
    for folder in (work, output):
        folder.mkdir(parents=True, exist_ok=True)
    binary = find_browser() or sys.exit(
        "no Chromium is installed: the pictures of pages need one"
    )
    if arguments.year is not None:
        in_use(output, arguments.year.resolve(), binary)
        return
    small = [
        SOURCE,
        SIZE,
        f"data.corpus={work / 'corpus'}",
        f"track.directory={work / 'runs'}",
        "name=docstrings",
    ]
    log = work / "training.txt"
    if not log.exists():
        log.write_text(
            typed("train", CONFIG, *small).replace(f"{work}/", ""), encoding="utf-8"
        )
    terminal(
        output / "training.svg",
        log.read_text(encoding="utf-8"),
        "xmtc train CONFIG",
        width=140,
    )
    pages(output, work, binary)
    dry_run = typed("train", CONFIG, *small, "--dry-run")  # now of the prepared corpus
    terminal(output / "dry_run.svg", dry_run, "xmtc train CONFIG --dry-run")
    sweep(output / "sweep.svg", work, small)


def typed(*arguments: str, folder: Path = ROOT) -> str:
    """What a command prints that is typed in a folder."""
    environment = os.environ | {"COLUMNS": "110", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*XMTC, *arguments],
        env=environment,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        sys.exit(f"xmtc {' '.join(arguments)}\n{done.stdout}")
    return done.stdout


def terminal(
    path: Path, printed: str | RenderableType, title: str, *, width: int = 110
) -> None:
    """Write the last 40 lines of what a terminal shows as SVG."""
    console = Console(record=True, width=width, file=io.StringIO())
    if isinstance(printed, str):
        printed = Text("\n".join(printed.rstrip().splitlines()[-40:]))
    console.print(
        printed, "", sep="\n"
    )  # the frame cuts off what reaches below the last line
    path.write_text(
        console.export_svg(title=title, theme=DEFAULT_TERMINAL_THEME), encoding="utf-8"
    )


def sweep(path: Path, work: Path, small: list[str]) -> None:
    """Write the table of a sweep over a ridge penalty, without a head."""
    grid = work / "grid.yaml"
    grid.write_text(yaml.safe_dump(GRID), encoding="utf-8")
    overrides = [one for one in small if not one.startswith("name")]
    typed(
        "sweep",
        CONFIG,
        str(grid),
        *overrides,
        "model.head={kind: none}",
        "name=penalties",
    )
    table = (work / "runs/penalties-sweep/sweep.md").read_text(encoding="utf-8")
    terminal(path, Markdown(table), "sweep.md", width=150)


def pages(output: Path, work: Path, binary: str) -> None:
    """Take the pictures of the three pages."""
    run = work / "runs/docstrings"
    evidence = work / "evidence.html"
    model = str((run / "model").relative_to(work))  # as it appears on the page
    typed(
        "explain",
        model,
        "--text",
        TEXT,
        "--top-k",
        "3",
        "--output",
        str(evidence),
        folder=work,
    )
    browser = Browser(binary, Path(tempfile.mkdtemp(prefix="profile-", dir=work)))
    try:
        browser.open(run / "eval/test/report.html", width=1280, height=1115)
        browser.picture(output / "report.png")
        browser.open(evidence, height=760)
        browser.picture(output / "evidence.png")
        place = tuple(browser.run(FIRST_LABEL))
        Image.open(output / "evidence.png").crop(place).save(
            output / "prediction.png", optimize=True
        )
        with served(run / "model", work) as address:
            browser.open(address, height=760)
            browser.wait(
                "document.querySelector('#next') && !document.querySelector('#next').hidden"
            )
            browser.run("document.querySelector('#next').click()")
            browser.wait("document.querySelectorAll('#labels li').length > 0")
            browser.picture(output / "annotate.png")
    finally:
        browser.close()


def in_use(output: Path, year: Path, binary: str) -> None:
    """Take the pictures of the reports on a model in use, and what its server said of versions."""
    browser = Browser(binary, Path(tempfile.mkdtemp(prefix="profile-")))
    try:
        for name, (page, place, height) in IN_USE.items():
            browser.open(year / page, height=height)
            browser.run(f"document.querySelector('{place}').scrollIntoView()")
            browser.picture(output / f"{name}.png")
            Image.open(output / f"{name}.png").convert("RGB").quantize(64).save(
                output / f"{name}.png", optimize=True
            )
    finally:
        browser.close()
    said = (year / "server.log").read_text(encoding="utf-8").replace(f"{year}/", "")
    first = "\n".join(said.splitlines()[:6])
    terminal(output / "versions.svg", first, "xmtc serve --models models", width=150)


@contextmanager
def served(model: Path, work: Path) -> Iterator[str]:
    """The address of a server with a queue of one document."""
    queue = work / "queue.jsonl"
    queue.write_text(json.dumps({"id": "1", "text": TEXT}) + "\n", encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [
        *XMTC,
        "serve",
        str(model),
        "--port",
        port,
        "--order",
        "file",
        "--queue",
        str(queue),
    ]
    command += ["--annotations", str(work / "annotations.jsonl")]
    server = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)})
    try:
        wait_for(int(port), server)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.terminate()
        server.wait(60)


def wait_for(port: int, server: subprocess.Popen) -> None:
    """Wait until the server listens."""
    while server.poll() is None:
        with socket.socket() as client:
            client.settimeout(1)
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
    sys.exit("the server did not start")


if __name__ == "__main__":
    main()
