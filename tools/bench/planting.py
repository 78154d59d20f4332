"""Planting in closed form against the paper's stage 1: time, and how well the attention ranks the tokens of dev.

    .venv/bin/python tools/bench/planting.py [CONFIG] [overrides] [--epochs N]

Both start from the same cached hidden states, in this process: epochs of the paper's stage 1, and the closed form.
The time is this process's CPU time. Prints JSON lines; the last line and the exit status say whether all bars hold.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bars import held
from xmtc.config.load import load_config
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.stages.plant import plant, token_ndcg
from xmtc.stages.prepare import prepare_corpus, rank_tokens
from xmtc.stages.run_stage import denormals_as_zero
from xmtc.stages.worker import build_worker

ROOT = Path(__file__).parents[2]
TIME = 0.1
"""At most this share of stage 1's time, for an nDCG@10 that is at least as high."""


def planted(config: RunConfig, name: str) -> tuple[float, float]:
    """Plant the attention of a new run. Return CPU seconds, without encoding the corpus, and nDCG@10."""
    config = replace(config, name=name)
    paths = RunPaths.of(config)
    corpus = prepare_corpus(config)
    rank_tokens(config, paths, corpus)
    worker = build_worker(config, paths)
    for split in (worker.train, worker.dev):
        worker.batches.collator(split, cached=True)
    began = time.process_time()
    with denormals_as_zero():
        plant(worker)
    seconds, ndcg = time.process_time() - began, token_ndcg(worker)
    print(
        json.dumps(
            {"name": name, "cpu_s": round(seconds, 1), "ndcg@10": round(ndcg, 4)}
        ),
        flush=True,
    )
    return seconds, ndcg


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "config", nargs="?", type=Path, default=ROOT / "configs/quickstart.yaml"
    )
    parser.add_argument("overrides", nargs="*")
    parser.add_argument(
        "--epochs", type=int, default=10, help="of stage 1; the paper has 10"
    )
    arguments = parser.parse_args()
    base = load_config(RunConfig, arguments.config, arguments.overrides)
    with tempfile.TemporaryDirectory() as folder:
        base = replace(base, track=replace(base.track, directory=folder))
        stage_1 = replace(
            base.plant,
            method="ranking",
            epochs=arguments.epochs,
            patience=0,
            parts=("attention",),
        )
        closed_form = replace(
            base.plant, method="closed_form", epochs=None, parts=("attention",)
        )
        slow_s, before = planted(replace(base, plant=stage_1), "stage_1")
        fast_s, after = planted(replace(base, plant=closed_form), "closed_form")
    bars = [("time", fast_s / slow_s, TIME), ("nDCG@10", before / after, 1.0)]
    sys.exit(not held("planting", bars))


if __name__ == "__main__":
    main()
