"""Made-up run directories that look like real ones: a long tail of labels, training curves, a configuration."""

import json
from pathlib import Path

import numpy as np
import yaml
from scipy import sparse

from evaluation_cases import best
from xmtc.data.labels import LabelTable
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.decisions import outcomes_of
from xmtc.evaluate.evaluation import EvaluatedDocuments, evaluate
from xmtc.evaluate.store import write_evaluation

TOPICS = (
    "torch",
    "scipy",
    "pandas",
    "ray",
    "sklearn",
    "numpy",
    "pyarrow",
    "transformers",
)
TRAIN = 8000


def labels_of(count: int) -> LabelTable:
    """Dotted names under eight roots, with a power law of train counts."""
    rng = np.random.default_rng(1)
    names = list(TOPICS)
    while len(names) < count:
        parent = names[int(rng.integers(min(len(names), 8 + len(names) // 3)))]
        names.append(f"{parent}.m{len(names):04d}")
    parents = [
        tuple([name.rpartition(".")[0]] if "." in name else []) for name in names
    ]
    counts = np.minimum(6000 / (np.arange(count) + 1.5) ** 0.95, 3000).astype(np.int64)
    counts[-count // 20 :] = 0
    return LabelTable(
        names,
        [f"Topic of {name}" if i % 2 else name for i, name in enumerate(names)],
        counts,
        parents,
    )


def make_run(
    root: Path,
    name: str,
    *,
    documents: int = 800,
    labels: int = 300,
    skill: float = 2.5,
) -> Path:
    """Write a run directory.

    Args:
        root: folder of runs.
        name: of the run.
        documents: evaluated documents; runs with equal numbers hold the same ones.
        labels: number of labels.
        skill: separation of gold and other labels; rare labels get less of it.
    """
    table = labels_of(labels)
    rng = np.random.default_rng(7)
    prior = (table.train_counts + 0.4) / TRAIN
    rows = [
        rng.choice(
            labels, size=rng.integers(1, 7), replace=False, p=prior / prior.sum()
        )
        for _ in range(documents)
    ]
    pairs = (
        np.repeat(np.arange(documents), [len(r) for r in rows]),
        np.concatenate(rows),
    )
    gold = sparse.csr_array(
        (np.ones(len(pairs[0]), bool), pairs), shape=(documents, labels)
    )
    known = skill * np.log10(table.train_counts + 2)
    noise = np.random.default_rng(abs(hash(skill)) % 1000).normal(
        size=(documents, labels)
    )
    logits = 0.6 * np.log(prior) - 2 + gold.toarray() * known + noise
    predictions = best((1 / (1 + np.exp(-logits))).astype(np.float32), min(100, labels))
    doc_ids = [f"doc-{i:05d}" for i in range(documents)]
    lengths = rng.lognormal(5, 0.7, documents).astype(np.int32) + 5
    decision = outcomes_of(predictions, gold).tuned("micro")
    run = root / name
    config = EvaluateConfig(resamples=200)
    known = EvaluatedDocuments(doc_ids, lengths)
    evaluation = evaluate(
        predictions,
        gold,
        table,
        TRAIN,
        config=config,
        decision=decision,
        documents=known,
    )
    write_evaluation(
        run / "eval" / "test",
        evaluation,
        predictions=predictions,
        doc_ids=doc_ids,
        labels=table.labels,
    )
    _write_history(run, skill)
    _write_setup(run, name, planted="random" not in name)
    return run


def _write_history(run: Path, skill: float) -> None:
    rng, lines = np.random.default_rng(3), []
    for stage, steps, start in (("plant", 400, 2.1), ("finetune", 1200, 6.0)):
        for step in range(10, steps + 1, 10):
            loss = start * np.exp(-skill * step / steps) + 0.3 + 0.05 * rng.random()
            record = {
                "stage": stage,
                "step": step,
                "time_s": step * 0.2,
                "train/loss": loss,
                "perf/tokens_per_s": 9000,
            }
            if step % 200 == 0:
                metric = "dev/ndcg@5"
                record[metric] = 0.2 * skill + 0.15 * np.log10(step / steps + 0.1)
            lines.append(json.dumps(record))
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def _write_setup(run: Path, name: str, *, planted: bool) -> None:
    config = {
        "name": name,
        "seed": 13,
        "plant": {"epochs": 10 * planted},
        "finetune": {"epochs": 3},
    }
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    record = {
        "config_hash": "0123abcd",
        "created_at": "2026-01-02T03:04:05.000+00:00",
        "versions": {"python": "3.11.2", "torch": "2.13.0"},
        "git": {"commit": "abc1234", "dirty": False},
        "sessions": [
            {
                "started_at": "2026-01-02",
                "command": ["xmtc", "train", "configs/x.yaml"],
                "world_size": 1,
            }
        ],
        "stages": {"plant": {"state": "done"}, "finetune": {"state": "done"}},
    }
    (run / "run.json").write_text(json.dumps(record))
