"""The lightweight track on single-label data: every encoder with the same data, loop and measure, next to TF-IDF.

    python tools/study/light.py                                   # the table, one seed
    python tools/study/light.py --systems bag,cnn --seeds 1,2,3
    python tools/study/light.py --low-resource 250 --seeds 1,2,3,4,5 --against minilm_cls
    python tools/study/light.py --set gnd_type                    # library records by kind, not reviews
    python tools/study/light.py --set gnd_type_balanced           # the same, equally many of each kind

A fifth of the documents (5,000 reviews) are held out and measured; 5 % of the others choose the best epoch (and C of
the logistic regression), so that nothing is chosen on what is measured. Runs are resumable: finished ones are read, not
repeated. Prints JSON lines; those with "bar" are the goals of the track on IMDB, and the exit status is 1 when one of
them is not held.
"""

import argparse
import json
import os
import statistics
import sys
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import TypeAdapter
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from xmtc.data.corpus import Corpus
from xmtc.data.parallel import map_processes
from xmtc.data.readers.base import Document
from xmtc.files import replacing_file
from xmtc.pipeline import prepare_stage, train_run
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.sweep.comparison import train_seconds
from xmtc.track.progress import Progress

DATA = Path(os.environ.get("XMTC_DATA", Path(__file__).parents[3] / "shared" / "data"))
HELD_OUT, CHOOSING = 0.2, 0.04
GOAL = 0.923
RESAMPLES = 2000
WIDTH = 128

EMBEDDING = {"dropout": 0.3, "token_dropout": 0.1}
MULTILEVEL = {"kind": "multilevel", "embedding": EMBEDDING, "dropout": 0.2}
MINILM = {"kind": "hugging_face", "name": "packaged:all-MiniLM-L6-v2"}
NGRAMS = {"ngrams": 3, "min_documents": 3, "most_terms": 600_000}
LINEAR = [
    {
        "kind": "linear",
        "most_terms": 600_000,
        "weighting": "log_odds",
        "penalty": 0.5,
        "prune": 0.01,
    },
    {"kind": "word_neighbours"},
]
Json = dict[str, Any]


def flat(pooling: str) -> Json:
    return {"kind": "flat", "pooling": {"kind": pooling}, "dropout": 0.2}


def maxpool(variant: str) -> Json:
    encoder = {"kind": "maxpool", "base": MINILM, "variant": variant}
    return {"encoder": encoder, "head": flat("first")}


@dataclass(frozen=True)
class Source:
    """A single-label data set.

    Attributes:
        file: below the data folder.
        columns: of the file, where they are not the usual ones.
        balanced: whether each label gets as many documents as the rarest one.
    """

    file: str
    columns: Json
    balanced: bool = False


GND_TYPE: Json = {"text": ["title", "text"], "labels": "type"}
# numbered by row: IMDB's own numbers are of positive and of negative reviews, and so not unique
SOURCES = {
    "imdb": Source("imdb/train.parquet", {}),
    "gnd_type": Source("gnd_tib/train.parquet", GND_TYPE),
    "gnd_type_balanced": Source("gnd_tib/train.parquet", GND_TYPE, balanced=True),
}


# multilevel has the size of self_attention: its feed-forward layer is narrower by what its second attention needs
SYSTEMS: dict[str, Json] = {
    "bag": {"encoder": {"kind": "bag", "embedding": EMBEDDING}, "head": flat("mean")},
    "cnn": {"encoder": {"kind": "cnn", "embedding": EMBEDDING}, "head": flat("max")},
    "bigru": {
        "encoder": {"kind": "bigru", "embedding": EMBEDDING},
        "head": flat("attention"),
    },
    "self_attention": {
        "encoder": {"kind": "self_attention", "embedding": EMBEDDING, "dropout": 0.2},
        "head": flat("attention"),
    },
    "multilevel": {
        "encoder": {**MULTILEVEL, "feed_forward": 192},
        "head": flat("attention"),
    },
    "multilevel+low_rank": {
        "encoder": {**MULTILEVEL, "transform": "low_rank"},
        "head": flat("attention"),
    },
    "multilevel+depthwise": {
        "encoder": {**MULTILEVEL, "transform": "depthwise"},
        "head": flat("attention"),
    },
    # runs of 1 to 3 words alone
    "scorers": {"encoder": MINILM, "head": {"kind": "none"}, "scorers": LINEAR},
    "bag+scorers": {
        "encoder": {"kind": "bag", "embedding": EMBEDDING},
        "head": flat("mean"),
        "scorers": LINEAR,
    },
    "cnn+scorers": {
        "encoder": {"kind": "cnn", "embedding": EMBEDDING},
        "head": flat("max"),
        "scorers": LINEAR,
    },
    "bigru+scorers": {
        "encoder": {"kind": "bigru", "embedding": EMBEDDING},
        "head": flat("attention"),
        "scorers": LINEAR,
    },
    # a pretrained encoder that stays as it is, encoded once: what fine-tuning costs hours for on two cores
    "minilm_frozen+scorers": {
        "encoder": MINILM,
        "head": {"kind": "label_attention", "width": 256, "heads": 8, "dropout": 0.3},
        "scorers": LINEAR,
        "layers": 0,
    },
    "minilm_cls": {"encoder": MINILM, "head": flat("first")},
    "minilm_mean": {"encoder": MINILM, "head": flat("mean")},
    "maxpool_cls_max": maxpool("cls_max"),
    "maxpool_cls_attention": maxpool("cls_attention"),
    "maxpool_all_max_attention": maxpool("all_max_attention"),
}
TFIDF = "tfidf_logistic_regression"
PRETRAINED = [name for name in SYSTEMS if name.startswith(("minilm", "maxpool"))]


def sized(encoder: Json, width: int) -> Json:
    """The encoder with its own transformer and embedding at this width; pretrained ones have theirs."""
    if width == WIDTH or "embedding" not in encoder:
        return encoder
    found = encoder | {"embedding": encoder["embedding"] | {"width": width}}
    if encoder["kind"] in ("self_attention", "multilevel"):
        found |= {
            "width": width,
            "feed_forward": encoder.get("feed_forward", 512) * width // WIDTH,
        }
    return found


def configuration(name: str, seed: int, arguments: argparse.Namespace) -> RunConfig:
    """The run of one system and seed."""
    system = SYSTEMS[name]
    pretrained = name in PRETRAINED
    size = arguments.low_resource
    shape = "" if arguments.width == WIDTH else f"-{arguments.width}"
    source = SOURCES[arguments.set]
    corpus = f"{arguments.set}-{'minilm' if pretrained else 'own'}-{size or 'all'}-{arguments.max_length}"
    prefix = "" if arguments.set == "imdb" else f"{arguments.set}-"
    label = f"{prefix}{name}-{size or 'all'}-{arguments.max_length}{shape}-{seed}"
    rates = (5e-5, 0.9) if pretrained else (1e-3, 1.0)
    rate, layers = (
        dict(zip(("encoder_learning_rate", "layer_decay"), rates, strict=True)),
        system.get("layers", -1),
    )
    epochs = arguments.epochs or (3 if pretrained else 8)
    content = {
        "name": label.replace("+", "_"),
        "seed": seed,
        "data": {
            "source": {
                "kind": "parquet",
                "files": {"train": str(source_file(source, arguments))},
                "columns": source.columns,
            },
            "corpus": str(arguments.work / corpus),
            "tokenizer": None
            if pretrained
            else {"kind": "trained", "vocab_size": 20_000},
            "max_length": arguments.max_length,
            "words": NGRAMS if system.get("scorers") else {},
            "split": {"dev": CHOOSING, "test": HELD_OUT},
            # who has few labelled reviews has no more of them to choose with
            "limit": {"train": size, "dev": size, "test": arguments.test_documents},
            "task": "single_label",
        },
        "model": {
            "encoder": sized(system["encoder"], arguments.width),
            "head": system["head"],
            "scorers": system.get("scorers", []),
        },
        "finetune": {
            "phases": [
                {"epochs": epochs, "encoder_layers": layers, **(rate if layers else {})}
            ],
            "optimizer": {
                "learning_rate": 1e-3,
                "weight_decay": 0.05,
                "schedule": "linear",
            },
            "loss": {"kind": "cross_entropy", "label_smoothing": 0.05},
            "metric": "accuracy",
        },
        "distributed": {"precision": "bf16" if pretrained else "fp32"},
        "track": {"directory": str(arguments.work / "runs")},
    }
    return TypeAdapter(RunConfig).validate_json(json.dumps(content))


def source_file(source: Source, arguments: argparse.Namespace) -> Path:
    """The file of a data set; a balanced one is written first."""
    path = arguments.data / source.file
    if not source.balanced:
        return path
    chosen = arguments.work / "balanced" / source.file
    if not chosen.exists():
        table = pq.read_table(path)
        rows = balanced_rows(np.array(table[source.columns["labels"]].to_pylist()))
        with replacing_file(chosen) as partial:
            pq.write_table(table.take(rows), partial)
    return chosen


def balanced_rows(labels_N: NDArray[np.str_]) -> NDArray[np.intp]:
    """Rows, in order, of as many documents of each label as the rarest has; drawn with a fixed seed."""
    generator = np.random.default_rng(0)
    found, counts = np.unique(labels_N, return_counts=True)
    drawn = [
        generator.choice(np.flatnonzero(labels_N == label), counts.min(), replace=False)
        for label in found
    ]
    return np.sort(np.concatenate(drawn))


def run(config: RunConfig) -> tuple[NDArray[np.bool_], Json]:
    """Train where that is not done yet; which held-out documents are right, and what it cost."""
    with redirect_stdout(sys.stderr):
        train_run(config)
    paths = RunPaths.of(config)
    corpus = Corpus.open(paths.corpus)
    model = config.model.build(len(corpus.tokenizer()), len(corpus.labels))
    counts = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "train_s": train_seconds(paths),
    }
    return right_of_run(
        paths.evaluation("test") / "predictions.parquet", corpus
    ), counts


def right_of_run(predictions: Path, corpus: Corpus) -> NDArray[np.bool_]:
    """Whether the best label is the true one, for each held-out document in the order of their ids."""
    table = pq.read_table(predictions).to_pydict()
    best = {
        doc_id: labels[0]
        for doc_id, labels in zip(table["doc_id"], table["labels"], strict=True)
    }
    true = true_labels(corpus, "test")
    return np.array([best[doc_id] == true[doc_id] for doc_id in sorted(true)])


def true_labels(corpus: Corpus, name: str) -> dict[str, str]:
    split = corpus.split(name)
    ids = (int(split.label_ids(row)[0]) for row in range(len(split)))
    return dict(
        zip(split.doc_ids(), (corpus.labels.labels[i] for i in ids), strict=True)
    )


def run_tfidf(config: RunConfig) -> tuple[NDArray[np.bool_], Json]:
    """TF-IDF of words and pairs of words, logistic regression, C chosen on dev: what a user would pick instead."""
    corpus = prepare_stage(config)
    documents = config.data.source.build().read(map_processes, Progress(enabled=False))
    text = {
        document.doc_id: document.text
        for document in documents
        if isinstance(document, Document)
    }
    splits = {
        name: sorted(true_labels(corpus, name).items())
        for name in ("train", "dev", "test")
    }
    start = time.perf_counter()
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    fitted = vectorizer.fit_transform([text[doc_id] for doc_id, _ in splits["train"]])
    inputs = {
        name: vectorizer.transform([text[doc_id] for doc_id, _ in splits[name]])
        for name in ("dev", "test")
    }
    labels = {
        name: np.array([label for _, label in pairs]) for name, pairs in splits.items()
    }
    models = [
        LogisticRegression(C=c, max_iter=500).fit(fitted, labels["train"])
        for c in (1, 10, 100)
    ]
    best = max(models, key=lambda model: model.score(inputs["dev"], labels["dev"]))
    counts = {
        "parameters": int(best.coef_.size),
        "train_s": time.perf_counter() - start,
        "C": best.C,
    }
    return best.predict(inputs["test"]) == labels["test"], counts


def resampled(right_SN: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Accuracies (RESAMPLES,) over documents and seeds, both drawn with replacement.

    The documents of a draw depend on their number alone, so that what two systems get is paired.
    """
    generator = np.random.default_rng(0)
    seeds, documents = right_SN.shape
    drawn = [generator.integers(documents, size=documents) for _ in range(RESAMPLES)]
    return np.array(
        [
            right_SN[generator.integers(seeds, size=seeds)].mean(0)[rows].mean()
            for rows in drawn
        ]
    )


def interval(values: NDArray[np.float64]) -> list[float]:
    """95 % interval of resampled values."""
    return [round(float(value), 4) for value in np.quantile(values, [0.025, 0.975])]


def difference(
    name: str, right_SN: NDArray[np.bool_], other: str, other_SN: NDArray[np.bool_]
) -> Json:
    """How far one system is ahead of another on the same documents."""
    row: Json = {
        "name": name,
        "against": other,
        "difference": round(float(right_SN.mean() - other_SN.mean()), 4),
    }
    return row | {"ci95": interval(resampled(right_SN) - resampled(other_SN))}


def study(name: str, arguments: argparse.Namespace) -> tuple[Json, NDArray[np.bool_]]:
    """One row of the table, and which documents are right with each seed."""
    deterministic = name == TFIDF
    seeds = arguments.seeds[:1] if deterministic else arguments.seeds
    runs = []
    for seed in seeds:
        config = configuration("bag" if deterministic else name, seed, arguments)
        runs.append(run_tfidf(config) if deterministic else run(config))
    right_SN = np.array([right for right, _ in runs])
    by_seed = right_SN.mean(1).tolist()
    seconds = [counts["train_s"] for _, counts in runs if counts["train_s"] is not None]
    row: Json = {
        "name": name,
        "accuracy": round(statistics.mean(by_seed), 4),
        "ci95": interval(resampled(right_SN)),
    }
    row |= {
        "by_seed": [round(a, 4) for a in by_seed],
        "held_out": right_SN.shape[1],
        **runs[0][1],
    }
    return row | {
        "train_s": round(statistics.mean(seconds), 1) if seconds else None
    }, right_SN


def verdicts(rows: dict[str, Json]) -> list[Json]:
    """The goals that the systems which ran can speak to."""
    found = []
    own = {name: row for name, row in rows.items() if name != TFIDF}
    if own:
        best = max(own.values(), key=lambda row: row["accuracy"])
        found.append(
            {
                "name": f"best_accuracy_{best['name']}",
                "ratio": best["accuracy"],
                "bar": GOAL,
            }
        )
        found[-1]["holds"] = best["accuracy"] >= GOAL
    if {"multilevel", "self_attention"} <= rows.keys():
        gap = rows["multilevel"]["ci95"][0] - rows["self_attention"]["ci95"][1]
        name = "multilevel_low_minus_self_attention_high"
        found.append(
            {"name": name, "ratio": round(gap, 4), "bar": 0.0, "holds": gap > 0}
        )
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--systems", default=",".join([TFIDF, *SYSTEMS]), help="comma-separated"
    )
    parser.add_argument(
        "--seeds", type=lambda text: [int(s) for s in text.split(",")], default=[1]
    )
    parser.add_argument(
        "--low-resource", type=int, help="train on this many reviews only"
    )
    parser.add_argument(
        "--test-documents",
        type=int,
        help="measure on fewer held-out reviews, to try things out",
    )
    parser.add_argument(
        "--max-length", type=int, default=256, help="tokens of a review"
    )
    parser.add_argument(
        "--width",
        type=int,
        default=WIDTH,
        help="of the encoders that start from scratch",
    )
    parser.add_argument(
        "--epochs",
        type=int,
        help="instead of 8 from scratch and 3 of a pretrained encoder",
    )
    parser.add_argument(
        "--against",
        help="print how far each system is ahead of this one, with its interval",
    )
    parser.add_argument(
        "--set",
        choices=list(SOURCES),
        default="imdb",
        help="reviews by sentiment, or records by kind",
    )
    parser.add_argument(
        "--data", type=Path, default=DATA, help="folder with the data sets"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("runs/light_study"),
        help="where corpora and runs go",
    )
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    names = arguments.systems.split(",")
    unknown = [name for name in names if name != TFIDF and name not in SYSTEMS]
    if unknown:
        sys.exit(f"no system {unknown[0]!r}; there are: {', '.join([TFIDF, *SYSTEMS])}")
    if arguments.against and arguments.against not in names:
        sys.exit(
            f"--against {arguments.against}: not among --systems {arguments.systems}"
        )
    rows: dict[str, Json] = {}
    right: dict[str, NDArray[np.bool_]] = {}
    for name in names:
        rows[name], right[name] = study(name, arguments)
        print(json.dumps(rows[name]), flush=True)
    for name in right if arguments.against else ():
        if name != arguments.against:
            row = difference(
                name, right[name], arguments.against, right[arguments.against]
            )
            print(json.dumps(row), flush=True)
    goals = verdicts(rows) if arguments.set == "imdb" else []
    for goal in goals:
        print(json.dumps(goal), flush=True)
    return 0 if all(goal["holds"] for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
