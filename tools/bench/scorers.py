"""What fused scorers add to the time of the backbone alone, per document and on one thread.

    python tools/bench/scorers.py MODEL PARQUET [--text title text] [--documents 256] [--rounds 5]

MODEL is an exported model with `model.scorers`; PARQUET has the columns of its fields and categories. Both sides
tokenise the same texts and make the same batches. One runs the encoder, the other is `xmtc score` with every scorer and
the fusion. Rounds alternate, and the ratio is of processor seconds: the median over rounds. The last line is {"name",
"ratio", "bar", "holds"}; exit status 1 where the bar is not held.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch

from bars import held
from xmtc.artefact.export import ModelParts, load_model
from xmtc.data.collate import Collator
from xmtc.data.fields import FieldText
from xmtc.data.readers.columns import category_terms
from xmtc.data.sampler import MicroBatch, evaluation_batches
from xmtc.score.batch import BlockScorer, TokenBlock
from xmtc.score.inputs import RawBlock
from xmtc.score.job import Settings
from xmtc.score.shell import use_bfloat16

BAR = 1.3


@torch.inference_mode()
def encode(parts: ModelParts, block: TokenBlock, settings: Settings) -> None:
    """Run the encoder over a block, in the batches of `xmtc score`."""
    classifier = parts.classifier
    collate = Collator(
        block.documents,
        parts.tokenizer,
        window=classifier.encoder.window,
        overlap=parts.info.model.overlap,
    )
    for rows in evaluation_batches(block.documents.lengths, settings.tokens_per_batch):
        batch = collate(MicroBatch(rows, np.ones(len(rows), np.float32)))
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.bfloat16):
            classifier.encode(batch)


def cpu_seconds(run: Callable[[], object]) -> float:
    """Processor seconds that a call takes."""
    started = time.process_time()
    run()
    return time.process_time() - started


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("parquet", type=Path)
    parser.add_argument("--text", nargs="+", default=["text"])
    parser.add_argument("--documents", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts = load_model(arguments.model)
    rows = pq.read_table(arguments.parquet).slice(0, arguments.documents).to_pylist()
    texts = tuple(
        FieldText.join(
            [row[name] for name in arguments.text],
            category_terms(row, parts.info.categories),
        )
        for row in rows
    )
    settings = Settings(top_k=5, bfloat16=use_bfloat16("auto", "cpu"))
    scorer = BlockScorer(parts, settings, torch.device("cpu"), workers=1)
    raw = RawBlock(0, 0, tuple(map(str, range(len(texts)))), texts, ())
    ratios = []
    for number in range(arguments.rounds):
        encoder = cpu_seconds(lambda: encode(parts, scorer.tokenise(raw), settings))
        whole = cpu_seconds(lambda: scorer.score(scorer.tokenise(raw)))
        ratios.append(whole / encoder)
        per_document = {
            "encoder_ms": 1e3 * encoder / len(texts),
            "all_ms": 1e3 * whole / len(texts),
        }
        rounded = {name: round(value, 2) for name, value in per_document.items()}
        print(
            json.dumps({"round": number, **rounded, "ratio": round(ratios[-1], 3)}),
            flush=True,
        )
    return (
        0 if held("scorers", [("all scorers", statistics.median(ratios), BAR)]) else 1
    )


if __name__ == "__main__":
    sys.exit(main())
