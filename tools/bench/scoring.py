"""Documents per second of `xmtc score` (local engine) against the plain loop that a user would write with the model.

    python tools/bench/scoring.py PARQUET [--model DIR] [--documents 128] [--labels 2000] [--rounds 3] [--threads 2]

The plain loop: Hugging Face tokenizer, batches of 32 in the order of the file, padded to the longest, fp32, all cores.
Rounds alternate. `ratio` is of wall clock, the median over rounds; `cpu_ratio` is of processor seconds. On a machine
that others use too, look at the latter with --threads 1: the plain loop's threads wait for each other, and spin.
Without --model an untrained one with a packaged MiniLM is built. Two lines more: `startup_s`, what a scoring process
needs for its imports and to load the model, and all of `xmtc score` for one document; `scaling`, documents/s with one
worker and with two, which alternate, and the median of their ratios. The last line is {"name", "ratio", "bar",
"holds"}; exit status 1 where the bar is not held.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from transformers import AutoTokenizer

from xmtc.artefact.export import ModelParts, export_model, load_model
from xmtc.artefact.info import ModelInfo
from xmtc.data.labels import LabelTable
from xmtc.data.pretrained import resolve_pretrained
from xmtc.data.tokenizer import special_tokens
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.backbone_config import HuggingFaceConfig
from xmtc.models.heads.config import LabelAttentionConfig
from xmtc.score.batch import BlockScorer
from xmtc.score.inputs import RawBlock
from xmtc.score.job import Settings
from xmtc.score.shell import use_bfloat16

BAR = 2.5
NAME = "packaged:all-MiniLM-L6-v2"


def untrained(directory: Path, labels: int) -> Path:
    torch.manual_seed(0)
    config = ModelConfig(
        encoder=HuggingFaceConfig(name=NAME), head=LabelAttentionConfig()
    )
    tokenizer = AutoTokenizer.from_pretrained(resolve_pretrained(NAME))
    classifier = config.build(len(tokenizer), labels)
    names = [f"L{i:06d}" for i in range(labels)]
    info = ModelInfo(
        name="benchmark", model=config, vocab_size=len(tokenizer), max_length=510
    )
    head = dict(classifier.head.named_parameters(prefix="head"))
    table = LabelTable(names, names, np.ones(labels, np.int64))
    return export_model(directory, ModelParts(info, classifier, tokenizer, table), head)


@torch.no_grad()
def plain_loop(parts: ModelParts, texts: list[str], threads: int) -> list[list[str]]:
    torch.set_num_threads(threads)
    before, after = special_tokens(parts.tokenizer)
    longest = parts.info.max_length + len(before) + len(after)
    found = []
    for start in range(0, len(texts), 32):
        part = texts[start : start + 32]
        encoded = parts.tokenizer(
            part, padding=True, truncation=True, max_length=longest, return_tensors="pt"
        )
        mask = encoded["attention_mask"].bool()
        hidden = parts.classifier.encoder(encoded["input_ids"], mask)
        best = parts.classifier.head(hidden, mask, None).topk(5).indices
        found += [[parts.labels.labels[i] for i in row] for row in best.tolist()]
    parts.tokenizer.backend_tokenizer.no_truncation()
    parts.tokenizer.backend_tokenizer.no_padding()
    return found


def engine(scorer: BlockScorer, texts: list[str]) -> list[list[str]]:
    ids = tuple(str(i) for i in range(len(texts)))
    return scorer.score(scorer.tokenise(RawBlock(0, 0, ids, tuple(texts), ())))[
        "labels"
    ].to_pylist()


def timed(run: Callable[[], list[list[str]]]) -> tuple[list[list[str]], float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = run()
    return found, time.perf_counter() - wall, time.process_time() - cpu


def scaling(
    parts: ModelParts, settings: Settings, texts: list[str], rounds: int
) -> None:
    """Print documents/s with one worker and with two."""
    scorers = {
        workers: BlockScorer(parts, settings, torch.device("cpu"), workers)
        for workers in (1, 2)
    }
    seconds = []
    for number in range(rounds):
        found = {
            workers: timed(lambda s=scorer: engine(s, texts))[1]
            for workers, scorer in scorers.items()
        }
        seconds.append(found)
        rates = {
            f"docs_per_s_{workers}": round(len(texts) / s, 2)
            for workers, s in found.items()
        }
        print(
            json.dumps(
                {"scaling": number, **rates, "ratio": round(found[1] / found[2], 3)}
            ),
            flush=True,
        )
    print(
        json.dumps(
            {
                "scaling": "median",
                "ratio": round(statistics.median(s[1] / s[2] for s in seconds), 3),
            }
        )
    )


STARTUP = """
import sys, time
t = time.perf_counter()
from pathlib import Path
import xmtc.cli, xmtc.score.shell
imported = time.perf_counter() - t
from xmtc.artefact.export import load_model
load_model(Path(sys.argv[1]))
print(imported, time.perf_counter() - t - imported)
"""


def startup(model: Path, text: str) -> None:
    """Print what a scoring process costs before its first document, in seconds of wall clock."""
    words = [sys.executable, "-c"]
    said = subprocess.run(
        [*words, STARTUP, str(model)], check=True, capture_output=True, text=True
    ).stdout.split()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "one.jsonl").write_text(json.dumps({"text": text}) + "\n")
        command = [
            "score",
            str(model),
            f"{folder}/one.jsonl",
            "--output",
            f"{folder}/out",
        ]
        began = time.perf_counter()
        subprocess.run(
            [*words, "from xmtc.cli import main; main()", *command],
            check=True,
            capture_output=True,
        )
        whole = time.perf_counter() - began
    found = {
        "imports": float(said[-2]),
        "model": float(said[-1]),
        "one_document_in_all": whole,
    }
    print(
        json.dumps(
            {"startup_s": {name: round(value, 2) for name, value in found.items()}}
        ),
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parquet", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--documents", type=int, default=128)
    parser.add_argument("--labels", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    texts = pq.read_table(arguments.parquet, columns=["text"])["text"].to_pylist()[
        : arguments.documents
    ]
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or untrained(Path(folder) / "model", arguments.labels)
        parts = load_model(model)
        startup(model, texts[0])
    # The plain loop has no calibration: with it the two would not be the same model.
    parts.classifier.calibration = None
    settings = Settings(top_k=5, bfloat16=use_bfloat16("auto", "cpu"))
    scorer = BlockScorer(parts, settings, torch.device("cpu"), arguments.threads)
    walls, cpus, found = [], [], {}
    for number in range(arguments.rounds):
        plain, plain_s, plain_cpu_s = timed(
            lambda: plain_loop(parts, texts, arguments.threads)
        )
        ours, ours_s, ours_cpu_s = timed(lambda: engine(scorer, texts))
        walls.append(plain_s / ours_s)
        cpus.append(plain_cpu_s / ours_cpu_s)
        found = {"plain": plain, "ours": ours}
        line = {
            "round": number,
            "plain_docs_per_s": len(texts) / plain_s,
            "docs_per_s": len(texts) / ours_s,
        }
        print(
            json.dumps(line | {"ratio": walls[-1], "cpu_ratio": cpus[-1]}), flush=True
        )
    pairs = list(zip(found["plain"], found["ours"], strict=True))
    print(
        json.dumps(
            {
                "bfloat16": settings.bfloat16,
                "labels": len(parts.labels),
                "documents": len(texts),
                "threads": arguments.threads,
                "top1_differs": sum(a[:1] != b[:1] for a, b in pairs) / len(pairs),
                "top5_set_differs": sum(set(a) != set(b) for a, b in pairs)
                / len(pairs),
                "top5_labels_differ": sum(len(set(a) - set(b)) for a, b in pairs)
                / (5 * len(pairs)),
                "cpu_ratio": statistics.median(cpus),
            }
        )
    )
    scaling(parts, settings, texts, arguments.rounds)
    ratio = statistics.median(walls)
    print(
        json.dumps(
            {
                "name": "scoring",
                "ratio": round(ratio, 2),
                "bar": BAR,
                "holds": ratio >= BAR,
            }
        )
    )
    return 0 if ratio >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
