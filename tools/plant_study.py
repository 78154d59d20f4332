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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from tree_baseline import figures, measured, of_tokens, predict, train_tree

from xmtc.config.load import load_config
from xmtc.data.corpus import Corpus
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.fit_calibration import calibrated, fit_calibration
from xmtc.evaluate.predictions import SparsePredictions
from xmtc.models.lexical import Lexical
from xmtc.pipeline import prepare_stage, train_run
from xmtc.report.run_results import RunResults
from xmtc.report.write import write_report
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.stages.evaluate import load_best
from xmtc.stages.scoring import score
from xmtc.stages.worker import Worker

ARMS = {"planted": [], "planted attention only": ["plant.prototypes=false"], "random": ["plant.enabled=false"]}
HEAD, LEXICAL, FUSED = "{}", "lexical branch alone", "{} + lexical branch"  # the first and last of an arm
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
    for name, features in (("same tokens", of_tokens(corpus)), ("whole texts", of_texts(corpus, args.data))):
        for kind, found in parabel(corpus, *features).items():
            rows[f"Parabel, {name}{kind}"] = [found]
            say({"system": f"Parabel, {name}{kind}", **found})
    for seed in range(args.seeds):
        for arm in args.arms:
            name = f"{arm.replace(' ', '-')}-{args.train_docs}-{seed}"
            config = load_config(RunConfig, args.config, [*common, *ARMS[arm], f"name={name}", f"seed={seed}"])
            run = train_run(config)
            fused = figures(json.loads((run / "eval" / "dev" / "metrics.json").read_text()))
            for part, found in (alone(config) | {FUSED: fused}).items():
                rows.setdefault(system := part.format(arm), []).append(found)
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
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=["planted", "random"])
    parser.add_argument("--work", default="build/plant_study")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further overrides, for all arms")
    parser.add_argument("--json", type=Path, help="also write every figure here")
    args = parser.parse_args()
    if not (args.data / "train.parquet").exists():
        sys.exit(f"{args.data}: no train.parquet there; give --data, or set XMTC_DATA")
    return args


def alone(config: RunConfig) -> dict[str, dict[str, float]]:
    """Metrics on dev of the head of a finished run without the lexical branch, and of the branch without the head."""
    worker = Worker(config, RunPaths.of(config))
    load_best(worker)
    return {HEAD: dev_metrics(worker), LEXICAL: dev_metrics(worker, Lexical.load(worker.paths.lexical))}


def dev_metrics(worker: Worker, lexical: Lexical | None = None) -> dict[str, float]:
    worker.classifier.lexical, worker.classifier.lexical_share = lexical, 1.0
    rows, predictions = score(worker, worker.dev, top_k=100, cached=not worker.encoder_trains())
    gold = worker.dev.label_matrix()[rows]
    return measured(worker.corpus, calibrate(worker.corpus, predictions, gold), gold)


def calibrate(corpus: Corpus, predictions: SparsePredictions, gold: sparse.csr_array) -> SparsePredictions:
    """Scores calibrated by label frequency on these documents, as `xmtc train` does on dev."""
    calibration = fit_calibration(predictions, gold, corpus.labels.train_counts, EvaluateConfig().bins)
    return calibrated(predictions, calibration)


def of_texts(corpus: Corpus, data: Path) -> Iterator[sparse.csr_matrix]:
    """TF-IDF of the words of the whole texts, of train and dev."""
    vectorizer = TfidfVectorizer(sublinear_tf=True)
    for split, learn in (("train", vectorizer.fit_transform), ("dev", vectorizer.transform)):
        table = pq.read_table(data / f"{split}.parquet", columns=["doc_id", "title", "text"]).to_pylist()
        texts = {row["doc_id"]: f"{row['title']}\n{row['text']}" for row in table}
        yield sparse.csr_matrix(learn([texts[doc_id] for doc_id in corpus.split(split).doc_ids()]))


def parabel(corpus: Corpus, train: sparse.csr_matrix, dev: sparse.csr_matrix) -> dict[str, dict[str, float]]:
    """Figures on dev of omikuji with its default settings, as it is and calibrated like the others."""
    predictions = predict(train_tree(train, corpus.split("train").label_matrix()), dev)
    gold = corpus.split("dev").label_matrix()
    return {
        "": measured(corpus, predictions, gold),
        ", calibrated": measured(corpus, calibrate(corpus, predictions, gold), gold),
    }


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
