"""Which scorers over words `xmtc init` should write, by cross-validation on training files alone.

    python tools/study/words_recipe.py DATA OUT --tasks laws library clinic --arms '[]' '[{kind: ranked_words}]'
    python tools/study/words_recipe.py DATA OUT --tasks reviews bare --arms '[]' '[{kind: linear, penalty: 2}]'

The tasks are those of `own_data.py`. An arm is a list of settings: of a kind that `init` writes, they change those; of
another kind, they add a scorer. `{kind: linear, drop: true}` leaves one out. `{kind: words, stems: 0}` changes
`data.words`.

Scorers are fitted on three quarters of the documents and fused; the fusion and the threshold of one half of the last
quarter are fitted on the other half. Prints a JSON line for each task, arm and fold, in percent, of the arm's last
scorer and of all scorers over words; then means over folds, with the difference to the first arm and its standard
error over folds.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from own_data import TASKS, make
from quality import candidates, fused
from quality_data import Case, Rows, case_of
from xmtc.config.load import load_config
from xmtc.config.plain import to_plain
from xmtc.config.shape import adapter
from xmtc.data.config import WordsConfig
from xmtc.data.readers.base import Document
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.decisions import outcomes_of
from xmtc.evaluate.evaluation import evaluate
from xmtc.run.config import RunConfig
from xmtc.scorers.base import Scorer
from xmtc.scorers.config import ScorerConfig, ScorerSettings
from xmtc.track.progress import Progress

FOLDS = 4
WORDS = "words"
KEYS = ("p@1", "ndcg@5", "micro_f1", "macro_f1")


@dataclass(frozen=True)
class Task:
    """The training documents of a task, and what `init` writes for them."""

    config: RunConfig
    rows: Rows
    names: dict[str, list[str]]

    def case(self, fold_N: NDArray[np.int64], fold: int, words: WordsConfig) -> Case:
        """Hold one fold out."""
        source = self.config.data.source.build()
        train, held_out = (
            {
                name: [values[row] for row in np.flatnonzero((fold_N == fold) == held)]
                for name, values in self.rows.items()
            }
            for held in (False, True)
        )
        single = all(len(one) == 1 for one in self.rows["labels"])
        fields, categories = source.fields(), source.categories()
        return case_of(
            train, held_out, self.names, words, fields, categories, single_label=single
        )

    def words(self, arm: str) -> WordsConfig:
        """The terms of an arm; those that `init` wrote first."""
        settings = to_plain(self.config.data.words)
        for change in yaml.safe_load(arm):
            settings |= {
                key: value
                for key, value in change.items()
                if change["kind"] == WORDS and key != "kind"
            }
        return adapter(WordsConfig).validate_json(json.dumps(settings))

    def scorers(self, arm: str) -> list[ScorerSettings]:
        """The scorers over words of an arm; those that `init` wrote first."""
        written = [
            one
            for one in self.config.model.scorers
            if one.needs <= {"words", "label_texts"} and one.kind != "tree"
        ]
        found = [to_plain(one) for one in written]
        for change in (one for one in yaml.safe_load(arm) if one["kind"] != WORDS):
            same = [one for one in found if one["kind"] == change["kind"]]
            if change.get("drop"):
                found = [one for one in found if one not in same]
            elif same:
                same[0].update(change)
            else:
                found.append({"fields": to_plain(written[0])["fields"], **change})
        return [adapter(ScorerConfig).validate_json(json.dumps(one)) for one in found]


def main() -> None:
    arguments = parse()
    for name in arguments.tasks:
        task = load_task(name, arguments.data, arguments.out)
        found: dict[str, list[dict[str, float]]] = {arm: [] for arm in arguments.arms}
        fold_N = np.random.default_rng(1).permutation(
            np.arange(len(task.rows["text"])) % FOLDS
        )
        for fold in range(FOLDS):
            for arm, line in figures(task, fold_N, fold, arguments.arms):
                print(
                    json.dumps({"task": name, "arm": arm, "fold": fold, **line}),
                    flush=True,
                )
                found[arm].append(line)
        for arm, lines in found.items():
            print(
                json.dumps(
                    {"task": name, "arm": arm, **means(lines, found[arguments.arms[0]])}
                ),
                flush=True,
            )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", type=Path, help="folder with a folder for each data set"
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--arms", nargs="+", required=True)
    return parser.parse_args()


def load_task(name: str, data: Path, out: Path) -> Task:
    """Make the files of a task, let `init` look at them, and read the training documents."""
    folder, written = out / name, out / f"{name}.yaml"
    if not folder.exists():
        make(name, data, out)
    written.unlink(missing_ok=True)
    asked = ["init", str(folder), "--budget", "10m", "--output", str(written)]
    command = [sys.executable, "-c", "from xmtc.cli import main; main()", *asked]
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    config = load_config(RunConfig, written)
    source = config.data.source.build()
    documents = [
        one
        for one in source.read(map, Progress(enabled=False))
        if isinstance(one, Document)
    ]
    kept = [
        one
        for one in documents
        if one.split in (None, "train") and (one.labels or name == "bare")
    ]
    info = source.label_info()
    names = {
        label: [text, *info.alternatives.get(label, ())]
        for label, text in info.names.items()
    }
    names = names or {label: [label] for one in kept for label in one.labels}
    readable = any(one.kind == "label_text" for one in config.model.scorers)
    rows = {"text": [one.text for one in kept], "labels": [one.labels for one in kept]}
    return Task(config, rows, names if readable else {})


def figures(
    task: Task, fold_N: NDArray[np.int64], fold: int, arms: Sequence[str]
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the figures of each arm; scorers of equal settings and terms are fitted once."""
    cases: dict[str, tuple[Case, dict[str, Scorer]]] = {}
    for arm in arms:
        words, scorers, seconds = task.words(arm), [], 0.0
        if repr(words) not in cases:
            cases[repr(words)] = task.case(fold_N, fold, words), {}
        case, fitted = cases[repr(words)]
        for settings in task.scorers(arm):
            begun = time.perf_counter()
            if repr(settings) not in fitted:
                fitted[repr(settings)] = settings.fit(case.training)
                seconds += time.perf_counter() - begun
            scorers.append(fitted[repr(settings)])
        changed = [
            one["kind"]
            for one in yaml.safe_load(arm)
            if not one.get("drop") and one["kind"] != WORDS
        ] or ["linear"]
        alone = [
            scorer
            for scorer, one in zip(scorers, task.scorers(arm), strict=True)
            if one.kind == changed[-1]
        ][:1]
        yield (
            arm,
            {
                "fit_s": round(seconds, 1),
                **measured(case, alone, "alone "),
                **measured(case, scorers, ""),
            },
        )


def measured(case: Case, scorers: Sequence[Scorer], prefix: str) -> dict[str, float]:
    """Measure both halves of the held-out documents, each with the fusion and threshold of the other; in percent."""
    pairs = candidates(scorers, case.held_out, [], len(case.labels))
    found = []
    for tuning, reported in (
        (case.tuning, case.reported),
        (case.reported, case.tuning),
    ):
        half = replace(case, tuning=tuning, reported=reported)
        every = fused(half, [str(place) for place in range(len(scorers))], pairs)
        known, unseen = every.take(tuning), every.take(reported)
        decision = (
            None
            if case.single_label
            else outcomes_of(known, case.gold[tuning]).tuned("micro")
        )
        gold, documents, config = (
            case.gold[reported],
            len(case.training),
            EvaluateConfig(resamples=0),
        )
        found.append(
            evaluate(
                unseen, gold, case.labels, documents, config=config, decision=decision
            ).metrics
        )
    return {
        f"{prefix}{key}": round(50 * sum(one[key] for one in found), 2) for key in KEYS
    }


def means(
    lines: Sequence[dict[str, float]], first: Sequence[dict[str, float]]
) -> dict[str, list[float]]:
    """Mean over the folds, difference to the first arm, and the standard error of the difference."""
    result = {}
    for key in lines[0]:
        value, base = (
            np.array([line[key] for line in some]) for some in (lines, first)
        )
        error = (value - base).std(ddof=1) / FOLDS**0.5
        result[key] = [
            round(float(one), 2) for one in (value.mean(), (value - base).mean(), error)
        ]
    return result


if __name__ == "__main__":
    main()
