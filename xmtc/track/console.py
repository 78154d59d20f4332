"""The console that progress and step lines share, and the step line itself. Results go to stdout, these to stderr."""

import functools
import io
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Shown in a step line, in this order; every other metric is only in metrics.jsonl.
_STEP_METRICS = (
    ("train/loss", "loss {:.4f}"),
    ("train/lr", "lr {:.2e}"),
    ("train/grad_norm", "grad norm {:.2f}"),
    ("perf/docs_per_s", "{:,.1f} docs/s"),
    ("perf/tokens_per_s", "{:,.0f} tokens/s"),
    ("perf/tflop_per_s", "{:.2f} TFLOP/s"),
    ("perf/mfu", "{:.0%} of the card's rate"),
    ("mem/peak_gib", "{:.1f} GiB"),
    ("mem/cuda_peak_gib", "{:.1f} GiB GPU"),
    ("time/data_wait_frac", "{:.0%} data wait"),
)
_MAX_OTHER_METRICS = 8
_OBEYED_CHARACTERS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters without tab and line feed
    "\u200e\u200f\u202a-\u202e\u2066-\u2069"  # changes of direction
    "\ud800-\udfff"  # halves of characters
)
_OBEYED = re.compile(f"[{_OBEYED_CHARACTERS}]")


@functools.cache
def shared_console() -> Console:
    """Return the only console of this process, on stderr: its lines appear above a live progress bar."""
    return Console(stderr=True, highlight=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Show neither progress nor results of this process inside the context. Logged warnings are still shown."""
    console = shared_console()
    quiet_before = console.quiet
    console.quiet = True
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        console.quiet = quiet_before


def printable(text: str) -> str:
    r"""Escape what a terminal would obey: control characters, changes of direction, halves of characters.

    Each becomes its escape, such as `\u001b`, which JSON reads as the same character. Tabs and line breaks stay.
    """
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def print_line(text: str, console: Console | None = None) -> None:
    """Print one line unchanged: no markup and no wrapping, so that a log has one line per fact."""
    (console or shared_console()).print(
        printable(text), markup=False, highlight=False, soft_wrap=True
    )


def terminal_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Collection[str] = (),
    title: str = "",
    caption: str = "",
) -> Table:
    """Make a table for a terminal. Texts are shown as they are: rich would read brackets in them as markup.

    Words that are wider than their column, such as keys and paths, go on in the next line, so that they can be copied.

    Args:
        columns: their headings.
        rows: a cell for each column; a `Text` brings a style of its own.
        right: headings of columns that are flush right, such as numbers.
        title: shown above the table.
        caption: shown beneath the table.
    """
    table = Table(
        title=_shown(title, "table.title"),
        caption=_shown(caption, "table.caption"),
        title_justify="left",
    )
    for name in columns:
        table.add_column(
            _shown(name) or "",
            justify="right" if name in right else "left",
            overflow="fold",
        )
    for row in rows:
        table.add_row(
            *(cell if isinstance(cell, Text) else Text(printable(cell)) for cell in row)
        )
    return table


def _shown(text: str, style: str = "") -> Text | None:
    return Text(printable(text), style) if text else None


def counted(number: int, one: str, many: str = "") -> str:
    """Write a number of things: `1 label`, `2 labels`, `1,000 people`.

    Args:
        number: how many.
        one: what one of them is called.
        many: what several are called. Default: `one` with an s.
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """Format seconds as `m:ss` or `h:mm:ss`; `-:--` if unknown."""
    if not math.isfinite(seconds):
        return "-:--"
    whole_minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(whole_minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def step_line(
    stage: str,
    step: int,
    total: int | None,
    metrics: Mapping[str, float],
    eta_s: float | None,
) -> str:
    """Write `finetune 120/500 (24 %) | loss 0.1234 | lr 1.00e-04 | … | ETA 1:23`; without a loss, the metrics."""
    position = f"{stage} {step:,}"
    if total is not None:
        position += f"/{total:,} ({step / max(total, 1):.0%})"
    parts = [
        template.format(metrics[name])
        for name, template in _STEP_METRICS
        if name in metrics
    ]
    if "train/loss" not in metrics:
        step_metrics = {name for name, _ in _STEP_METRICS}
        other_parts = [
            f"{name} {value:.4f}"
            for name, value in metrics.items()
            if name not in step_metrics
        ]
        parts = other_parts[:_MAX_OTHER_METRICS] + parts
    if eta_s is not None:
        parts.append(f"ETA {duration(eta_s)}")
    return " | ".join([position, *parts])
