"""What DeepSpeed costs where nothing needs it: one ZeRO worker against the plain loop; and how long steps await data.

    .venv/bin/python tools/bench/distributed.py [--rounds N] [--stage 2] [--clock cpu]

A LLaMA of 12 million random weights with LoRA and label attention is fine-tuned as training workers do it, but without
Ray, each time in its own process: in turn by the plain loop and by one DeepSpeed worker, round after round. Rates are
medians over steps; the ratio is taken within a round, and its median over rounds. Prints JSON lines; the last is about
the ratio. Exit 1 where a bar is not held. On a machine that others use too, `--clock cpu` counts processor seconds of
the process, which cannot tell how long it waits.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch.distributed as dist

from xmtc.config.load import load_config
from xmtc.pipeline import prepare_stage
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths, Stage
from xmtc.stages.run_stage import run_stage
from xmtc.track.throughput import Throughput
from xmtc.track.tracker import read_metrics
from xmtc.training import loop

ROOT = Path(__file__).parents[2]
LEAST_RATIO, MAX_WAITING = 0.90, 0.02
WARM_UP = 3  # steps: allocators, and DeepSpeed's first look at every parameter
SHAPE = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
}
SETTINGS = (
    "model.encoder.from_config=" + json.dumps(SHAPE),
    "data.max_length=512",
    "data.limit={train: 384, dev: 16, test: 16}",
    "plant.parts=[]",
    "finetune.phases=[{epochs: 1, encoder_layers: -1}]",
    "finetune.tokens_per_micro_batch=2048",
    "distributed.threads=null",
    "distributed.cpus_per_worker=2",
)


def configuration(folder: Path, name: str, strategy: str, workers: int) -> RunConfig:
    """The smoke configuration with a larger model, one phase and no other stage."""
    own = [
        f"name={name}",
        f"data.corpus={folder}/corpus",
        f"track.directory={folder}/runs",
    ]
    how = [f"distributed.workers={workers}", f"distributed.strategy={strategy}"]
    return load_config(
        RunConfig, ROOT / "configs" / "smoke_llama.yaml", [*SETTINGS, *own, *how]
    )


def train(config: RunConfig, clock: str) -> dict[str, float]:
    """Fine-tune in this process; tokens per second and the share of time that steps waited for data."""
    paths = RunPaths.of(config)
    paths.root.mkdir(parents=True)
    if config.distributed.max_workers:
        dist.init_process_group(
            "gloo", init_method=f"file://{paths.root / 'store'}", rank=0, world_size=1
        )
    meter = partial(
        Throughput, clock={"wall": time.perf_counter, "cpu": time.process_time}[clock]
    )
    with redirect_stdout(sys.stderr), patch.object(loop, "Throughput", meter):
        run_stage(Stage.FINETUNE, config, paths)
    if config.distributed.max_workers:
        dist.destroy_process_group()
    steps = [m for m in read_metrics(paths.metrics_log) if "perf/tokens_per_s" in m][
        WARM_UP:
    ]
    keys = {"tokens_per_s": "perf/tokens_per_s", "waiting": "time/data_wait_frac"}
    return {
        short: statistics.median(step[key] for step in steps)
        for short, key in keys.items()
    }


def apart(config: RunConfig, clock: str) -> dict[str, float]:
    """Run `train` in a separate process, because DeepSpeed changes its process."""
    with ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        return pool.submit(train, config, clock).result()


def main() -> None:
    """Measure and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stage", type=int, default=2, choices=(0, 1, 2, 3))
    parser.add_argument("--clock", default="wall", choices=("wall", "cpu"))
    arguments = parser.parse_args()
    kinds = {
        "plain loop": ("null", 0),
        "DeepSpeed": (f"{{kind: deepspeed, stage: {arguments.stage}}}", 1),
    }
    ratios, waiting = [], []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        prepare_stage(configuration(folder, "prepare", "null", 0))
        for index in range(arguments.rounds):
            found = {}
            for kind, how in list(kinds.items())[
                :: 1 if index % 2 else -1
            ]:  # each is first as often as the other
                found[kind] = apart(
                    configuration(folder, f"{index}-{how[1]}", *how), arguments.clock
                )
            print(json.dumps({"round": index + 1, **found}), flush=True)
            ratios.append(
                found["DeepSpeed"]["tokens_per_s"] / found["plain loop"]["tokens_per_s"]
            )
            waiting += [result["waiting"] for result in found.values()]
    wait, ratio = statistics.median(waiting), statistics.median(ratios)
    lines = [
        {
            "name": "DeepSpeed / plain loop, tokens/s",
            "ratio": ratio,
            "bar": LEAST_RATIO,
            "holds": ratio >= LEAST_RATIO,
        }
    ]
    if arguments.clock == "wall":
        lines.insert(
            0,
            {
                "name": "data wait share",
                "ratio": wait,
                "bar": MAX_WAITING,
                "holds": wait < MAX_WAITING,
            },
        )
    for line in lines:
        print(json.dumps(line))
    sys.exit(0 if all(line["holds"] for line in lines) else 1)


if __name__ == "__main__":
    main()
