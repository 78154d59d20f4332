"""Does planting help where labels are rare? Planted against random initialisation, and a TF-IDF tree, same documents.

The planted and the random run have identical heads and settings: `plant.enabled` is the one key that differs. Each is
measured as its head alone and as xmtc ships it, with the lexical branch, which is the same in all runs and has a row of
its own. The tree is omikuji's Parabel on TF-IDF of the very tokens that the model reads, and again of the whole texts.
Figures are on dev documents; the best epoch is picked, and the threshold tuned, on dev for all systems alike.

    .venv/bin/python tools/plant_study.py --data ../shared/data/eurlex57k --train-docs 2000 --seeds 3 --json out.json
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import omikuji
import pyarrow.parquet as pq
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer

from xmtc.config.load import load_config
from xmtc.config.schema import RunConfig
from xmtc.data.corpus import Corpus, Split
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.evaluation import evaluate
from xmtc.evaluate.predictions import SparsePredictions
from xmtc.evaluate.report.run_results import RunResults
from xmtc.evaluate.report.write import write_report
from xmtc.evaluate.thresholds import tune_threshold
from xmtc.models.lexical import Lexical
from xmtc.orchestrate.paths import RunPaths
from xmtc.orchestrate.pipeline import prepare_stage, train_run
from xmtc.orchestrate.stages import load_best, score
from xmtc.orchestrate.worker import Worker

ARMS = {"planted": [], "planted attention only": ["plant.prototypes=false"], "random": ["plant.enabled=false"]}
HEAD, LEXICAL, FUSED = "{}", "lexical branch alone", "{} + lexical branch"  # the first and last of an arm
KEYS = ("p@1", "p@5", "rp@5", "ndcg@5", "psp@5", "micro_f1", "macro_f1")
T_95 = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365, 10: 2.262}  # Student's t, 97.5 %, n − 1 degrees


def main() -> None:
    args = arguments()
    common = [
        f"data.source.files={{train: {args.data}/train.parquet, dev: {args.data}/dev.parquet}}",
        f"data.source.labels.path={args.data}/labels.parquet",
        f"data.limit={{train: {args.train_docs}, dev: {args.dev_docs}}}",
        f"data.corpus={args.work}/corpus-{args.train_docs}",
        f"track.directory={args.work}/runs",
        *args.set,
    ]
    corpus = prepare_stage(load_config(RunConfig, args.config, common))
    rows: dict[str, list[dict[str, float]]] = {}
    for name, features in (("Parabel, same tokens", of_tokens), ("Parabel, whole texts", of_texts)):
        rows[name] = [parabel(corpus, *features(corpus, args.data))]
        say({"system": name, **rows[name][0]})
    for seed in range(args.seeds):
        for arm in args.arms:
            name = f"{arm.replace(' ', '-')}-{args.train_docs}-{seed}"
            config = load_config(RunConfig, args.config, [*common, *ARMS[arm], f"name={name}", f"seed={seed}"])
            run = train_run(config)
            found = alone(config) | {FUSED: json.loads((run / "eval" / "dev" / "metrics.json").read_text())}
            for part, metrics in found.items():
                rows.setdefault(system := part.format(arm), []).append(figures(metrics))
                say({"system": system, "seed": seed, **rows[system][-1]})
    runs = [Path(args.work) / "runs" / f"{arm.replace(' ', '-')}-{args.train_docs}-0" for arm in args.arms]
    write_report([RunResults.load(run, "dev") for run in runs], Path(args.work) / "report.html")
    verdict(rows, args)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = Path(os.environ.get("XMTC_DATA", "../shared/data"))
    parser.add_argument("--config", type=Path, default=Path("configs/eurlex57k_minilm.yaml"))
    parser.add_argument("--data", type=Path, default=root / "eurlex57k", help="folder with train, dev, labels.parquet")
    parser.add_argument("--train-docs", type=int, default=1000)
    parser.add_argument("--dev-docs", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=["planted", "random"])
    parser.add_argument("--work", default="build/plant_study")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further overrides, for all arms")
    parser.add_argument("--json", type=Path, help="also write every figure here")
    args = parser.parse_args()
    if not (args.data / "train.parquet").exists():
        sys.exit(f"{args.data}: no train.parquet there; give --data, or set XMTC_DATA")
    return args


def alone(config: RunConfig) -> dict[str, dict[str, Any]]:
    """Metrics on dev of the head of a finished run without the lexical branch, and of the branch without the head."""
    worker = Worker(config, RunPaths.of(config))
    load_best(worker)
    return {HEAD: dev_metrics(worker), LEXICAL: dev_metrics(worker, Lexical.load(worker.paths.lexical))}


def dev_metrics(worker: Worker, lexical: Lexical | None = None) -> dict[str, Any]:
    worker.classifier.lexical, worker.classifier.lexical_share = lexical, 1.0
    rows, predictions = score(worker, worker.dev, top_k=100, cached=not worker.encoder_trains())
    return measured(worker.corpus, predictions, worker.dev.label_matrix()[rows])


def measured(corpus: Corpus, predictions: SparsePredictions, gold: sparse.csr_array) -> dict[str, Any]:
    config, thresholds = EvaluateConfig(resamples=0), tune_threshold(predictions, gold)
    documents = corpus.train_documents
    return dict(evaluate(predictions, gold, corpus.labels, documents, config=config, thresholds=thresholds).metrics)


def of_tokens(corpus: Corpus, _data: Path) -> Iterator[sparse.csr_matrix]:
    """TF-IDF of the token ids that the model reads, of train and dev."""
    transform = TfidfTransformer(sublinear_tf=True)
    vocabulary = corpus.manifest.tokenizer.vocab_size
    yield sparse.csr_matrix(transform.fit_transform(counts(corpus.split("train"), vocabulary)))
    yield sparse.csr_matrix(transform.transform(counts(corpus.split("dev"), vocabulary)))


def of_texts(corpus: Corpus, data: Path) -> Iterator[sparse.csr_matrix]:
    """TF-IDF of the words of the whole texts, of train and dev."""
    vectorizer = TfidfVectorizer(sublinear_tf=True)
    for split, learn in (("train", vectorizer.fit_transform), ("dev", vectorizer.transform)):
        table = pq.read_table(data / f"{split}.parquet", columns=["doc_id", "title", "text"]).to_pylist()
        texts = {row["doc_id"]: f"{row['title']}\n{row['text']}" for row in table}
        yield sparse.csr_matrix(learn([texts[doc_id] for doc_id in corpus.split(split).doc_ids()]))


def counts(split: Split, vocabulary: int) -> sparse.csr_matrix:
    lengths = np.asarray(split.lengths)
    tokens = np.concatenate([split.tokens(i) for i in range(len(split))])
    rows = np.repeat(np.arange(len(split)), lengths)
    return sparse.csr_matrix((np.ones(len(tokens), np.float32), (rows, tokens)), shape=(len(split), vocabulary))


def parabel(corpus: Corpus, train: sparse.csr_matrix, dev: sparse.csr_matrix, settings: Any = None) -> dict[str, float]:
    """Omikuji with these settings, or its default ones (Parabel, three trees)."""
    labels = corpus.split("train").label_matrix()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(f"{train.shape[0]} {train.shape[1]} {labels.shape[1]}\n")
        for i in range(train.shape[0]):
            own = ",".join(map(str, labels.indices[labels.indptr[i] : labels.indptr[i + 1]]))
            file.write(own + "".join(f" {j}:{v:.6f}" for j, v in pairs(train, i)) + "\n")
        file.flush()
        model = omikuji.Model.train_on_data(file.name, settings or omikuji.Model.default_hyper_param(), 2)
    found = [model.predict(pairs(dev, i), beam_size=30, top_k=100) for i in range(dev.shape[0])]
    predictions = SparsePredictions.from_rows([[(int(label), float(score)) for label, score in row] for row in found])
    return figures(measured(corpus, predictions, corpus.split("dev").label_matrix()))


def pairs(matrix: sparse.csr_matrix, row: int) -> list[tuple[int, float]]:
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return list(zip(matrix.indices[part].tolist(), matrix.data[part].tolist(), strict=True))


def figures(metrics: dict[str, Any]) -> dict[str, float]:
    """The figures compared, in percent."""
    bins = {f"macro_f1 {name}": part["macro_f1"] for name, part in metrics["bins"].items() if name != "0"}
    return {k: round(100 * v, 2) for k, v in ({key: metrics[key] for key in KEYS} | bins).items()}


def interval(values: list[float]) -> tuple[float, float, float]:
    """Mean, and its 95 % interval over seeds by Student's t; the interval of one value is everything."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return mean, -np.inf, np.inf
    half = T_95.get(len(values), 1.96) * statistics.stdev(values) / len(values) ** 0.5
    return mean, mean - half, mean + half


def verdict(rows: dict[str, list[dict[str, float]]], args: argparse.Namespace) -> None:
    table = {
        system: {key: [round(v, 2) for v in interval([row[key] for row in found])] for key in found[0]}
        for system, found in rows.items()
    }
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({"arguments": vars(args) | {"rows": rows}}, indent=1, default=str))
    for system, values in table.items():
        say(
            {"system": system, "mean_and_interval": {k: v for k, v in values.items() if np.isfinite(v).all()} or values}
        )
    rare = "macro_f1 1-5"
    planted, random, whole = table["planted"], table["random"], table[FUSED.format("planted")]
    apart = planted[rare][1] > random[rare][2]
    beats = all(
        whole[key][1] > rows[tree][0][key] for tree in rows if "Parabel" in tree for key in ("ndcg@5", "macro_f1")
    )
    say(
        {
            "bar": "planted head beats random head in macro-F1 of labels with 1-5 documents, intervals apart",
            "holds": bool(apart),
        }
    )
    say({"bar": "planted model, interval and all, beats both trees in nDCG@5 and macro-F1", "holds": bool(beats)})
    ratio = planted[rare][0] / max(random[rare][0], 1e-9)
    say({"name": "plant_study", "ratio": round(ratio, 3), "bar": 1.0, "holds": bool(apart and beats)})
    sys.exit(0 if apart and beats else 1)


def say(record: dict[str, Any]) -> None:
    print(json.dumps(record, default=float), flush=True)


if __name__ == "__main__":
    main()
