"""What a newcomer gets from `xmtc init` and `xmtc train`, against TF-IDF + LinearSVC and omikuji on the same files.

Files are made of public data sets: train.csv (or .jsonl, .tsv) and test of each task. All have the same settings.
The task `packages` needs apt, as Debian has it.

    python tools/study/own_data.py DATA OUT --budget 10m --tasks clinic reviews
    python tools/study/own_data.py DATA OUT --tasks clinic --systems xmtc --seeds 1 2 3 --settings 'plant.parts=[rows]'

The second command runs the recipe with other settings. Seeds share a corpus and the hidden states.
"""

import argparse
import json
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import omikuji
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.svm import LinearSVC

from xmtc.data.labels import LabelTable
from xmtc.data.pretrained import DEFAULT_BACKBONE, resolve_pretrained
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.decisions import outcomes_of
from xmtc.evaluate.evaluation import evaluate
from xmtc.scorers.predictions import SparsePredictions

TOP = 100
MAX_SVMS = 8_000
Scores = Callable[[Sequence[str]], SparsePredictions]
Fit = Callable[[Sequence[str], sparse.csr_array, Path], Scores | None]


def laws(data: Path, out: Path) -> None:
    """2,000 laws with the names of their subjects in one cell, and a title."""
    _laws(data, out, 2_000, random_state=1)


def few(data: Path, out: Path) -> None:
    """150 laws, written in the same way."""
    _laws(data, out, 150, random_state=5)


def _laws(data: Path, out: Path, train: int, random_state: int) -> None:
    table = pd.read_parquet(data / "eurlex57k/train.parquet").sample(
        train + 500, random_state=random_state
    )
    names = (
        pd.read_parquet(data / "eurlex57k/labels.parquet")
        .set_index("label")["name"]
        .to_dict()
    )
    table["subjects"] = [
        ";".join(names.get(label, label).replace(";", ",") for label in row)
        for row in table["labels"]
    ]
    divide(table[["doc_id", "title", "text", "subjects"]], 500, out, "csv")


def library(data: Path, out: Path) -> None:
    """3,000 library records with a long tail of subject headings, tab-separated, German and English."""
    table = pd.read_parquet(data / "gnd_tib/train.parquet").sample(
        3_600, random_state=1
    )
    names = (
        pd.read_parquet(data / "gnd_tib/labels.parquet")
        .set_index("label")["name"]
        .to_dict()
    )
    table["keywords"] = [
        " | ".join(names.get(label, label).replace("|", "/") for label in row)
        for row in table["labels"]
    ]
    divide(
        table.rename(columns={"text": "abstract"})[["title", "abstract", "keywords"]],
        600,
        out,
        "tsv",
    )


def _films(data: Path) -> pd.DataFrame:
    table = pd.read_parquet(data / "imdb/train.parquet").rename(
        columns={"text": "review"}
    )
    table["sentiment"] = [
        {"0": "negative", "1": "positive"}.get(str(row[0]), str(row[0]))
        for row in table["labels"]
    ]
    return table[["review", "sentiment"]]


def reviews(data: Path, out: Path) -> None:
    """4,000 film reviews, positive or negative."""
    divide(_films(data).sample(5_000, random_state=1), 1_000, out, "csv")


def imdb(data: Path, out: Path) -> None:
    """All 25,000 film reviews, 5,000 of them for test."""
    divide(_films(data).sample(frac=1, random_state=1), 5_000, out, "csv")


def sentences(data: Path, out: Path) -> None:
    """7,000 times the last words of a short film review, positive or negative."""
    table = _films(data).drop_duplicates("review")
    words = table["review"].str.split()
    table = table.assign(review=words.str[-24:].str.join(" "), words=words.str.len())
    short = table.sort_values("words", kind="stable")[:8_000].sample(
        frac=1, random_state=1
    )
    divide(short[["review", "sentiment"]], 1_000, out, "csv")


def clinic(data: Path, out: Path) -> None:
    """500 clinical cases with lists of codes, and a file with the codes' names."""
    for split, name in (("train", "train"), ("dev", "test")):
        table = pd.read_parquet(data / f"codiesp/{split}.parquet")[
            ["doc_id", "text", "labels"]
        ]
        table.to_json(out / f"{name}.jsonl", orient="records", lines=True)
    pd.read_parquet(data / "codiesp/labels.parquet").to_csv(
        out / "labels.csv", index=False
    )


def spanish(data: Path, out: Path) -> None:
    """The same clinical cases in Spanish, which they were written in; names of codes are English."""
    for split, name in (("train", "train"), ("dev", "test")):
        table = pd.read_parquet(data / f"codiesp/{split}.parquet")[
            ["doc_id", "text_es", "labels"]
        ]
        table.rename(columns={"text_es": "text"}).to_json(
            out / f"{name}.jsonl", orient="records", lines=True
        )
    pd.read_parquet(data / "codiesp/labels.parquet").to_csv(
        out / "labels.csv", index=False
    )


def bare(data: Path, out: Path) -> None:
    """3,000 laws; the labels are the 20 most frequent subjects, and about half of the laws have none."""
    table = pd.read_parquet(data / "eurlex57k/train.parquet").sample(
        6_750, random_state=2
    )
    kept = set(table["labels"].iloc[:3_750].explode().value_counts().index[:20])
    table["labels"] = [
        ",".join(label for label in row if label in kept) for row in table["labels"]
    ]
    divide(table[["title", "text", "labels"]], 3_750, out, "csv")


def packages(data: Path, out: Path) -> None:
    """The packages of a Debian release that have tags: a line of summary, the section, and the tags."""
    del data
    said = subprocess.run(
        ["apt-cache", "dumpavail"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    found = [
        dict(re.findall(r"^([\w-]+): ((?:.|\n )*)", one, re.MULTILINE))
        for one in said.split("\n\n")
    ]
    table = pd.DataFrame(
        [one for one in found if "Tag" in one and "Section" in one]
    ).drop_duplicates("Package")
    table["labels"] = table["Tag"].str.replace(r"\s+", " ", regex=True)
    table["text"] = table["Description"].str.partition("\n")[0]
    columns = {
        "Package": "package",
        "Section": "section",
        "text": "text",
        "labels": "labels",
    }
    table = (
        table.rename(columns=columns)[list(columns.values())]
        .sort_values("package")
        .sample(frac=1, random_state=1)
    )
    divide(table, 3_000, out, "csv", "text")


TASKS = {
    task.__name__: task
    for task in (
        laws,
        few,
        library,
        reviews,
        imdb,
        sentences,
        clinic,
        spanish,
        bare,
        packages,
    )
}


def make(task: str, data: Path, out: Path) -> Path:
    """Make the files of a task, and return their folder."""
    folder = (out / task).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    TASKS[task](data, folder)
    return folder


def divide(
    table: pd.DataFrame, test: int, out: Path, ending: str, text: str | None = None
) -> None:
    """The last rows are the test file; texts (by default the longest column) that come twice are left out."""
    text = text or max(table.columns, key=lambda name: table[name].str.len().mean())
    table = table.drop_duplicates(text)
    separator = "\t" if ending == "tsv" else ","
    table.iloc[:-test].to_csv(out / f"train.{ending}", index=False, sep=separator)
    table.iloc[-test:].to_csv(out / f"test.{ending}", index=False, sep=separator)


def run_xmtc(
    folder: Path, budget: str, seeds: Sequence[int], settings: Sequence[str]
) -> Iterator[dict[str, object]]:
    """`xmtc init` and `xmtc train` as a person types them, in an empty folder; metrics of test and seconds, by seed."""
    place = folder.parent / f"run_{folder.name}"
    place.mkdir(exist_ok=True)
    (place / f"{folder.name}.yaml").unlink(missing_ok=True)
    begun = time.perf_counter()
    said = _xmtc(place, "init", str(folder), "--budget", budget)
    looked = time.perf_counter() - begun
    estimate = next(line for line in said.splitlines() if line.startswith("estimate"))
    recipe = next(line for line in said.splitlines() if line.startswith("recipe"))
    found = {
        "settings": settings,
        "init_s": looked,
        "estimate": estimate,
        "recipe": recipe,
    }
    for seed in seeds:
        begun, name = (
            time.perf_counter(),
            f"{folder.name}-{zlib.crc32(json.dumps(settings).encode())}-{seed}",
        )
        _xmtc(
            place,
            "train",
            f"{folder.name}.yaml",
            f"name={name}",
            f"seed={seed}",
            *settings,
        )
        metrics = json.loads(
            (place / "runs" / name / "eval/test/metrics.json").read_text()
        )
        yield {
            **_chosen(metrics),
            "seed": seed,
            "seconds": time.perf_counter() - begun,
            **found,
        }


def _xmtc(place: Path, *arguments: str) -> str:
    command = [sys.executable, "-c", "from xmtc.cli import main; main()", *arguments]
    with (place / "log.txt").open("a", encoding="utf-8") as log:
        done = subprocess.run(
            command,
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed; see {place / 'log.txt'}")
    return done.stdout


def run_peers(folder: Path, budget_s: float) -> list[dict[str, object]]:
    """Linear models of TF-IDF; they take as long as they take."""
    del budget_s
    return _peers(
        folder, [("TF-IDF + LinearSVC", fit_svm), ("omikuji Parabel", fit_trees)]
    )


def _peers(folder: Path, systems: Sequence[tuple[str, Fit]]) -> list[dict[str, object]]:
    """Metrics of other systems; with several labels a tenth of train tunes the threshold, as in a run of xmtc."""
    (texts, labels), (test_texts, test_labels) = (
        _read(folder, split) for split in ("train", "test")
    )
    single = all(len(one) == 1 for one in labels)
    held = (np.random.default_rng(13).random(len(texts)) < 0.1) & (not single)
    binarizer = MultiLabelBinarizer(sparse_output=True).fit([*labels, *test_labels])
    gold = {
        "train": _gold(
            binarizer, [one for one, h in zip(labels, held, strict=True) if not h]
        ),
        "dev": _gold(
            binarizer, [one for one, h in zip(labels, held, strict=True) if h]
        ),
        "test": _gold(binarizer, test_labels),
    }
    parts = {
        "dev": [t for t, h in zip(texts, held, strict=True) if h],
        "test": test_texts,
    }
    train = [t for t, h in zip(texts, held, strict=True) if not h]
    rows = []
    for name, fit in systems:
        begun = time.perf_counter()
        score = fit(train, gold["train"], folder)
        if score is None:
            continue
        counts = np.asarray(gold["train"].sum(axis=0)).ravel().astype(np.int64)
        table = LabelTable(
            [str(one) for one in binarizer.classes_],
            list(map(str, binarizer.classes_)),
            counts,
        )
        decision = (
            None
            if single
            else outcomes_of(score(parts["dev"]), gold["dev"]).tuned("micro")
        )
        config = EvaluateConfig(resamples=0)
        found = evaluate(
            score(parts["test"]),
            gold["test"],
            table,
            len(train),
            config=config,
            decision=decision,
        ).metrics
        rows.append(
            {"system": name, **_chosen(found), "seconds": time.perf_counter() - begun}
        )
    return rows


def run_trainer(folder: Path, budget_s: float) -> list[dict[str, object]]:
    """`Trainer` of transformers on the packaged encoder: 5e-5, batches of 16, bf16, 256 tokens.

    It trains for as many epochs, from 3 to 20, as fit into the budget by the speed of a few steps.
    """
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        Trainer,
        TrainingArguments,
    )

    place = resolve_pretrained(DEFAULT_BACKBONE)
    tokenizer = AutoTokenizer.from_pretrained(place)

    def fit(texts: Sequence[str], gold: sparse.csr_array, folder: Path) -> Scores:
        single = _single(gold)
        kind = "single_label_classification" if single else "multi_label_classification"
        model = AutoModelForSequenceClassification.from_pretrained(
            place, num_labels=gold.shape[1], problem_type=kind
        )
        dense = gold.toarray().astype(np.float32)
        targets = dense.argmax(axis=1).tolist() if single else list(dense)
        ids = tokenizer(list(texts), truncation=True, max_length=256)["input_ids"]
        rows = [
            {"input_ids": one, "labels": target}
            for one, target in zip(ids, targets, strict=True)
        ]

        def trained(rows: Sequence[dict[str, Any]], **duration: int) -> Any:
            settings = TrainingArguments(
                output_dir=str(folder / "trainer"),
                learning_rate=5e-5,
                per_device_train_batch_size=16,
                per_device_eval_batch_size=64,
                bf16=True,
                use_cpu=not torch.cuda.is_available(),
                save_strategy="no",
                report_to=[],
                seed=13,
                **duration,
            )
            trainer = Trainer(
                model, settings, train_dataset=rows, processing_class=tokenizer
            )
            trainer.train()
            return trainer

        start = {name: value.clone() for name, value in model.state_dict().items()}
        begun = time.perf_counter()
        trained(rows, max_steps=10)
        epoch_s = (time.perf_counter() - begun) * len(rows) / 160
        model.load_state_dict(start)
        trainer = trained(
            rows, num_train_epochs=min(max(int(budget_s / epoch_s), 3), 20)
        )

        def score(unseen: Sequence[str]) -> SparsePredictions:
            ids = tokenizer(list(unseen), truncation=True, max_length=256)["input_ids"]
            logits = trainer.predict([{"input_ids": one} for one in ids]).predictions
            return _top(1 / (1 + np.exp(-logits)), np.arange(gold.shape[1]))

        return score

    return _peers(folder, [("Trainer of transformers", fit)])


def run_setfit(folder: Path, budget_s: float) -> list[dict[str, object]]:
    """SetFit (`pip install setfit`) on the packaged encoder: contrastive pairs, then logistic regression.

    Its own settings: batches of 16, 2e-5, pairs by oversampling. `max_steps` is what fits by the speed of a few steps.
    """
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    def fit(texts: Sequence[str], gold: sparse.csr_array, folder: Path) -> Scores:
        del folder
        single, dense = _single(gold), gold.toarray().astype(int)
        targets = dense.argmax(axis=1).tolist() if single else dense.tolist()
        rows = Dataset.from_dict({"text": list(texts), "label": targets})
        strategy = {} if single else {"multi_target_strategy": "one-vs-rest"}

        def trained(steps: int) -> SetFitModel:
            model = SetFitModel.from_pretrained(
                str(resolve_pretrained(DEFAULT_BACKBONE)), **strategy
            )
            settings = TrainingArguments(
                batch_size=16,
                max_steps=steps,
                save_strategy="no",
                report_to="none",
                seed=13,
            )
            trainer = Trainer(model, args=settings, train_dataset=rows)
            trainer.train_embeddings(list(texts), targets, args=settings)
            return model

        begun = time.perf_counter()
        trained(10)
        model = trained(int(10 * budget_s / (time.perf_counter() - begun)))
        model.fit(list(texts), targets, num_epochs=1)

        def score(unseen: Sequence[str]) -> SparsePredictions:
            return _top(
                np.asarray(model.predict_proba(list(unseen), as_numpy=True)),
                np.arange(gold.shape[1]),
            )

        return score

    return _peers(folder, [("SetFit", fit)])


PEERS = {"peers": run_peers, "trainer": run_trainer, "setfit": run_setfit}


def _single(gold: sparse.csr_array) -> bool:
    """Whether each document has one label."""
    return bool((np.diff(gold.indptr) == 1).all())


def fit_svm(
    texts: Sequence[str], gold: sparse.csr_array, folder: Path
) -> Scores | None:
    """One linear SVM a label, of labels that occur in train."""
    del folder
    present = np.flatnonzero(np.asarray(gold.sum(axis=0)).ravel())
    if len(present) > MAX_SVMS:
        return None
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2)
    rows = vectorizer.fit_transform(texts)
    targets = gold[:, present].toarray()
    model = OneVsRestClassifier(LinearSVC(C=1.0)).fit(rows, targets)

    def score(unseen: Sequence[str]) -> SparsePredictions:
        scores = np.asarray(model.decision_function(vectorizer.transform(unseen)))
        scores = scores[:, None] if scores.ndim == 1 else scores
        return _top(1 / (1 + np.exp(-scores)), present)

    return score


def fit_trees(texts: Sequence[str], gold: sparse.csr_array, folder: Path) -> Scores:
    """Omikuji with its default settings, on TF-IDF of unigrams."""
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2)
    rows = sparse.csr_array(vectorizer.fit_transform(texts))
    path = folder / "omikuji.txt"
    with path.open("w", encoding="utf-8") as file:
        file.write(f"{rows.shape[0]} {rows.shape[1]} {gold.shape[1]}\n")
        for i in range(rows.shape[0]):
            labels = ",".join(
                map(str, gold.indices[gold.indptr[i] : gold.indptr[i + 1]])
            )
            span = slice(rows.indptr[i], rows.indptr[i + 1])
            cells = " ".join(
                f"{c}:{v:.6g}"
                for c, v in zip(rows.indices[span], rows.data[span], strict=True)
            )
            file.write(f"{labels} {cells}\n")
    model = omikuji.Model.train_on_data(str(path))

    def score(unseen: Sequence[str]) -> SparsePredictions:
        asked = sparse.csr_array(vectorizer.transform(unseen))
        ids = np.full((len(unseen), TOP), -1, np.int32)
        scores = np.zeros((len(unseen), TOP), np.float32)
        for i in range(len(unseen)):
            span = slice(asked.indptr[i], asked.indptr[i + 1])
            features = [
                (int(c), float(v))
                for c, v in zip(asked.indices[span], asked.data[span], strict=True)
            ]
            for place, (label, value) in enumerate(model.predict(features, top_k=TOP)):
                ids[i, place], scores[i, place] = label, value
        return SparsePredictions(ids, scores)

    return score


def _top(
    scores_NL: NDArray[np.floating], ids_L: NDArray[np.integer]
) -> SparsePredictions:
    order = np.argsort(-scores_NL, axis=1, kind="stable")[:, :TOP]
    return SparsePredictions(
        ids_L[order].astype(np.int32),
        np.take_along_axis(scores_NL, order, 1).astype(np.float32),
    )


def _gold(
    binarizer: MultiLabelBinarizer, labels: Sequence[Sequence[str]]
) -> sparse.csr_array:
    return sparse.csr_array(binarizer.transform(labels)).astype(bool)


def _read(folder: Path, split: str) -> tuple[list[str], list[list[str]]]:
    """Texts and labels of a file, as anyone would read it."""
    path = next(folder.glob(f"{split}.*"))
    if path.suffix == ".jsonl":
        table = pd.read_json(path, lines=True)
        return table["text"].tolist(), table["labels"].tolist()
    table = pd.read_csv(
        path,
        sep="\t" if path.suffix == ".tsv" else ",",
        dtype=str,
        keep_default_na=False,
    )
    columns = [
        name
        for name in ("title", "abstract", "section", "text", "review")
        if name in table
    ]
    texts = table[columns].agg("\n".join, axis=1).tolist()
    column, separator = next(
        (name, sign)
        for name, sign in (
            ("subjects", ";"),
            ("keywords", "|"),
            ("sentiment", "\0"),
            ("labels", ","),
        )
        if name in table
    )
    return texts, [
        [one.strip() for one in cell.split(separator) if one.strip()]
        for cell in table[column]
    ]


def _chosen(metrics: dict[str, Any]) -> dict[str, object]:
    found = {
        key: metrics[key]
        for key in ("p@1", "ndcg@5", "micro_f1", "macro_f1", "docs", "docs_with_labels")
    }
    rare = metrics["bins"].get("1-5", {})
    return {**found, "macro_f1, 1-5 documents": rare.get("macro_f1")}


def main() -> None:
    """Make files, run everything, print and keep a line of JSON for each system."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with the public data sets")
    parser.add_argument("out", type=Path, help="folder for files and runs")
    parser.add_argument(
        "--budget", default="10m", help="minutes of `xmtc init`, Trainer and SetFit"
    )
    parser.add_argument(
        "--tasks",
        nargs="*",
        choices=list(TASKS),
        default=[one for one in TASKS if one != "packages"],
    )
    parser.add_argument(
        "--systems", nargs="*", choices=(*PEERS, "xmtc"), default=("peers", "xmtc")
    )
    parser.add_argument("--seeds", nargs="*", type=int, default=[13])
    parser.add_argument(
        "--settings", nargs="*", default=[], help="KEY=VALUE for `xmtc train`"
    )
    arguments = parser.parse_args()
    for task in arguments.tasks:
        folder, rows = make(task, arguments.data, arguments.out), []
        for name, run in PEERS.items():
            rows += (
                run(folder, 60 * float(arguments.budget.removesuffix("m")))
                if name in arguments.systems
                else []
            )
        if "xmtc" in arguments.systems:
            runs = run_xmtc(
                folder, arguments.budget, arguments.seeds, arguments.settings
            )
            rows += [{"system": f"xmtc, {arguments.budget}", **run} for run in runs]
        with (arguments.out / "results.jsonl").open("a", encoding="utf-8") as results:
            for row in rows:
                print(json.dumps({"task": task, **row}), file=results)
                print({"task": task, **row})


if __name__ == "__main__":
    main()
