"""The runs of the study of few epochs: docs/benchmarks/few_epochs.md says which and why.

    python tools/fetch/decoder.py weights/decoder && python tools/fetch/encoder.py weights/encoder
    PYTHONPATH=tools/plugins python tools/study/few_epochs.py data --weights weights --blocks a,b

Each run of a setting, start, number of epochs and seed adds a line to OUT/SETTING.jsonl (figures) and to
OUT/SETTING.outcomes.jsonl (predictions, from which `few_epochs_tables.py` computes intervals). Runs with a line are
skipped; a run that was killed is repeated. What dev chooses is in OUT/SETTING.choices.jsonl: the choice doesn't depend
on the epochs that follow, and its runs are those of the start that it names. Corpora and scorers are shared by the runs
of a setting.
"""

import argparse
import contextlib
import io
import json
import re
import shutil
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from few_epochs_settings import (
    BLOCKS,
    CHOSEN,
    Cell,
    run_config,
    runs_of,
    setting_config,
)
from planting import CHOOSE, MEASURE, Shared, alone, append, curves, fused, score, train
from xmtc.fusion.ensemble import HEAD
from xmtc.run.directory import RunPaths, Stage
from xmtc.run.state import git_state, versions
from xmtc.stages.finetune import load_best
from xmtc.stages.prepare import rank_tokens
from xmtc.stages.run_stage import denormals_as_zero, run_stage
from xmtc.stages.worker import build_worker

CHOICE = re.compile(
    r"^plant: (?P<best>[a-z ]+), by macro-F1 of dev before training: (?P<figures>.*)$",
    re.MULTILINE,
)
"""The line in which planting says what dev chose."""
START_OF_CHOICE = {
    "neither": "rows",
    "attention": "attention",
    "values": "values",
    "attention and values": "everything",
}


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; none if it doesn't exist."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class Study:
    """Runs with their lines.

    Args:
        arguments: of the command.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        state = git_state()
        self.made_by = {
            "commit": None if state is None else state.commit,
            "versions": versions(),
        }
        self.shared = cache(self._shared)

    def _shared(self, setting: str) -> Shared:
        arguments = self.arguments
        return Shared(
            setting_config(setting, arguments.data, arguments.weights, arguments.work)
        )

    def path(self, setting: str, kind: str = "") -> Path:
        """The file with the lines of a setting."""
        return self.arguments.out / f"{setting}{kind}.jsonl"

    def is_finished(self, cell: Cell, seed: int) -> bool:
        """Whether a run has its line."""
        name = {"start": cell.start, "epochs": cell.epochs, "seed": seed}
        return any(
            name.items() <= line.items() for line in lines_of(self.path(cell.setting))
        )

    def chosen_start(self, setting: str, seed: int) -> str:
        """The start that dev chooses with a seed; planted and measured unless a line says it."""
        path = self.path(setting, ".choices")
        for line in lines_of(path):
            if line["seed"] == seed:
                return line["start"]
        shared = self.shared(setting)
        config = run_config(shared.config, CHOSEN, 1, seed)
        paths = RunPaths.of(config)
        shutil.rmtree(paths.root, ignore_errors=True)
        began = time.process_time()
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed):
            rank_tokens(config, paths, shared.corpus)
            run_stage(Stage.PLANT, config, paths)
        shutil.rmtree(paths.root)
        match = CHOICE.search(printed.getvalue())
        if match is None:
            raise ValueError(
                f"{setting}, seed {seed}: planting printed no choice: {printed.getvalue()[-500:]}"
            )
        line = {
            "seed": seed,
            "start": START_OF_CHOICE[match["best"]],
            "dev_macro_f1": match["figures"],
        }
        append(
            path, line | {"cpu_s": round(time.process_time() - began, 1)} | self.made_by
        )
        return line["start"]

    def run(self, cell: Cell, seed: int) -> None:
        """Train and measure a run, and write its lines, unless it has them."""
        if cell.start == CHOSEN:
            cell = replace(cell, start=self.chosen_start(cell.setting, seed))
        if self.is_finished(cell, seed):
            return
        shared = self.shared(cell.setting)
        outcomes = self.path(cell.setting, ".outcomes")
        if not outcomes.exists():
            append(outcomes, shared.gold(MEASURE).to_json())
        name = {
            "setting": cell.setting,
            "start": cell.start,
            "epochs": cell.epochs,
            "seed": seed,
        }
        figures, predicted = measured_run(shared, cell, seed)
        append(outcomes, name | predicted)
        append(self.path(cell.setting), name | figures | self.made_by)
        print(
            json.dumps(name | {"head": figures["head"], "wall_s": figures["wall_s"]}),
            flush=True,
        )


def measured_run(
    shared: Shared, cell: Cell, seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train and measure one run: its figures, and its predictions."""
    began = time.perf_counter()
    config = run_config(shared.config, cell.start, cell.epochs, seed)
    paths = RunPaths.of(config)
    seconds = train(shared, config, cell.start)
    worker = build_worker(config, paths)
    load_best(worker)
    measuring = time.process_time()
    with denormals_as_zero():
        choose = score(shared, worker, CHOOSE)
        measure = score(shared, worker, MEASURE)
    head, head_predicted = alone(shared, choose.head, measure.head)
    both, both_predicted = fused(
        shared, choose.pairs, measure.pairs, [*shared.scorers, HEAD]
    )
    seconds["measure"] = round(time.process_time() - measuring, 1)
    figures = {
        "train_documents": shared.corpus.train_documents,
        "head": head,
        "fused": both,
        "curves": curves(paths),
        "cpu_s": seconds,
        "wall_s": round(time.perf_counter() - began, 1),
    }
    shutil.rmtree(paths.root)
    return figures, {
        "head": head_predicted.to_json(),
        "fused": both_predicted.to_json(),
    }


def _blocks(text: str) -> list[str]:
    for name in text.split(","):
        if name not in BLOCKS:
            raise argparse.ArgumentTypeError(
                f"no block {name!r}; there are: {', '.join(BLOCKS)}"
            )
    return text.split(",")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with the data sets")
    parser.add_argument(
        "--weights",
        type=Path,
        default=Path("weights"),
        help="folder that tools/fetch wrote",
    )
    parser.add_argument(
        "--blocks",
        type=_blocks,
        default=list(BLOCKS),
        help="comma-separated, in this order",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("docs/benchmarks/planting/few_epochs")
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("runs/few_epochs"),
        help="where corpora and runs go",
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    study = Study(arguments)
    for cell, seed in runs_of(arguments.blocks):
        study.run(cell, seed)


if __name__ == "__main__":
    main()
