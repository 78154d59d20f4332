"""Settings of an encoder that trains, on five small tasks that no other study reports.

The tasks and the settings were fixed before the first run. Every run is `xmtc init` and `xmtc train` with the recipe
that trains the encoder; a second start skips the runs whose line is there.

    python tools/study/encoder_sweep.py DATA OUT RESULTS.jsonl                # a line for each task and setting
    python tools/study/encoder_sweep.py DATA OUT RESULTS.jsonl --table        # means and differences
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from own_data import divide, run_xmtc

TEST = 1_500
BUDGET = "60m"  # so that `init` chooses the recipe whose encoder trains
_PHASE = {
    "epochs": 3,
    "encoder_layers": -1,
    "encoder_learning_rate": 1e-4,
    "layer_decay": 0.9,
}
ARMS = {
    "1e-4": {},
    "5e-5": {"encoder_learning_rate": 5e-5},
    "2e-4": {"encoder_learning_rate": 2e-4},
    "5 epochs": {"epochs": 5},
    "no layer-wise decay": {"layer_decay": 1.0},
}
METRICS = ("micro_f1", "macro_f1")


def openings(data: Path) -> pd.DataFrame:
    """The first 40 words of 3,000 film reviews; positive or negative."""
    table = (
        pd.read_parquet(data / "imdb/train.parquet")
        .drop_duplicates("text")
        .sample(3_000 + TEST, random_state=3)
    )
    words = table["text"].str.split().str[:40].str.join(" ")
    return pd.DataFrame(
        {
            "text": words,
            "labels": [
                "yes" if str(row[0]) == "1" else "no" for row in table["labels"]
            ],
        }
    )


def types(data: Path) -> pd.DataFrame:
    """2,000 library records by title and the first 60 words; one of the types that have at least 50."""
    table = pd.read_parquet(data / "gnd_tib/train.parquet").sample(
        2_100 + TEST, random_state=4
    )
    counts = table["type"].value_counts()
    table = table[table["type"].isin(counts[counts >= 50].index)]
    return pd.DataFrame(
        {
            "text": table["title"] + ". " + _words(table["text"], 60),
            "labels": table["type"],
        }
    )


def headings(data: Path) -> pd.DataFrame:
    """Titles of library records with some of the 30 most frequent headings."""
    return _frequent(
        pd.read_parquet(data / "gnd_tib/train.parquet"), "title", slice(0, 30), 3_000
    )


def articles(data: Path) -> pd.DataFrame:
    """The first 80 words of laws, with some of the subjects that are 21st to 40th by frequency."""
    table = pd.read_parquet(data / "eurlex57k/train.parquet")
    return _frequent(
        table.assign(text=_words(table["text"], 80)), "text", slice(20, 40), 1_500
    )


def chapters(data: Path) -> pd.DataFrame:
    """500 clinical cases; the chapters of their codes, by the first letter."""
    table = pd.concat(
        [
            pd.read_parquet(data / f"codiesp/{split}.parquet")
            for split in ("train", "dev")
        ]
    )
    letters = [",".join(sorted({code[0] for code in row})) for row in table["labels"]]
    return pd.DataFrame({"text": table["text"], "labels": letters})


TASKS = (openings, types, headings, articles, chapters)


def _words(texts: pd.Series, most: int) -> pd.Series:
    return texts.str.split().str[:most].str.join(" ")


def _frequent(table: pd.DataFrame, text: str, ranks: slice, train: int) -> pd.DataFrame:
    """Documents with some of the labels of these ranks by frequency."""
    kept = set(table["labels"].explode().value_counts().index[ranks])
    labels = table["labels"].map(
        lambda row: ",".join(label for label in row if label in kept)
    )
    found = pd.DataFrame({"text": table[text], "labels": labels})[labels != ""]
    return found.sample(train + TEST, random_state=5)


def main() -> None:
    """Run what is missing, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--tasks", nargs="*", choices=[task.__name__ for task in TASKS])
    parser.add_argument("--arms", nargs="*", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[13, 14, 15])
    arguments = parser.parse_args()
    lines = (
        arguments.results.read_text(encoding="utf-8").splitlines()
        if arguments.results.exists()
        else []
    )
    done = [json.loads(line) for line in lines]
    if arguments.table:
        print_table(done)
        return
    for task in (
        task
        for task in TASKS
        if arguments.tasks is None or task.__name__ in arguments.tasks
    ):
        folder = (arguments.out / task.__name__).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        table = task(arguments.data).drop_duplicates("text")
        divide(table, min(TEST, len(table) // 3), folder, "csv")
        for arm in arguments.arms:
            ended = [
                row["seed"]
                for row in done
                if (row["task"], row["arm"]) == (task.__name__, arm)
            ]
            settings = [f"finetune.phases=[{json.dumps({**_PHASE, **ARMS[arm]})}]"]
            missing = [seed for seed in arguments.seeds if seed not in ended]
            for found in run_xmtc(folder, BUDGET, missing, settings) if missing else ():
                with arguments.results.open("a", encoding="utf-8") as results:
                    print(
                        json.dumps({"task": task.__name__, "arm": arm, **found}),
                        file=results,
                    )


def print_table(rows: Sequence[dict]) -> None:
    """Print each arm's metrics by task, the mean of its seeds, and the mean difference to the first arm over pairs.

    A pair has the same task and seed. All in percent; ± are two standard errors.
    """
    by = {
        (row["arm"], row["task"], row["seed"]): np.array(
            [100 * row[metric] for metric in METRICS]
        )
        for row in rows
    }
    first, tasks = next(iter(ARMS)), [task.__name__ for task in TASKS]
    print(
        "| setting |",
        " | ".join(tasks),
        "| pairs | mean difference, micro-F1 and macro-F1 |",
    )
    print("|---" * (len(tasks) + 3) + "|")
    for arm in ARMS:
        found = [[by[key] for key in by if key[:2] == (arm, task)] for task in tasks]
        cells = [
            " / ".join(f"{mean:.1f}" for mean in np.mean(seeds, axis=0))
            if seeds
            else ""
            for seeds in found
        ]
        pairs = [
            by[key] - by[first, *key[1:]]
            for key in by
            if key[0] == arm and (first, *key[1:]) in by
        ]
        means, errors = (
            np.mean(pairs, axis=0),
            np.std(pairs, axis=0, ddof=1) / len(pairs) ** 0.5,
        )
        differences = ", ".join(
            f"{mean:+.2f} ± {2 * error:.2f}"
            for mean, error in zip(means, errors, strict=True)
        )
        print(f"| {arm} |", " | ".join(cells), f"| {len(pairs)} | {differences} |")


if __name__ == "__main__":
    main()
