"""Mean hidden states of the packaged MiniLM for the documents of `tools/study/quality.py`, cached by block in float16.

    python tools/study/quality_states.py data/eurlex57k runs/quality/eurlex57k

Resumable: finished blocks are kept. Two cores take tens of minutes for 45,000 documents of 256 tokens.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer

from quality_data import splits
from xmtc.data.pretrained import resolve_pretrained
from xmtc.files import replacing_file

BLOCK, BATCH = 1024, 32


def pooled_states(
    texts: list[str], folder: Path, max_length: int
) -> NDArray[np.float16]:
    """Mean states (N, 384), block by block; blocks that `folder` holds are read.

    Args:
        texts: N documents.
        folder: where blocks are kept.
        max_length: tokens of a document that the encoder reads.
    """
    encoder: Encoder | None = None
    blocks = []
    for start in range(0, len(texts), BLOCK):
        path = folder / f"{start:07d}.npy"
        if not path.exists():
            encoder = encoder or Encoder(max_length)
            began = time.perf_counter()
            states_BD = encoder.encode(texts[start : start + BLOCK])
            folder.mkdir(parents=True, exist_ok=True)
            with replacing_file(path) as partial, partial.open("wb") as file:
                np.save(file, states_BD)
            print(
                f"{folder.name}: {start} of {len(texts)}, {time.perf_counter() - began:.0f} s",
                flush=True,
            )
        blocks.append(np.load(path))
    return np.concatenate(blocks)


class Encoder:
    """The packaged MiniLM, frozen."""

    def __init__(self, max_length: int):
        name = resolve_pretrained("packaged:all-MiniLM-L6-v2")
        self.tokenizer = AutoTokenizer.from_pretrained(name)
        self.model = AutoModel.from_pretrained(name).eval()
        self.max_length = max_length

    @torch.inference_mode()
    def encode(self, texts: list[str]) -> NDArray[np.float16]:
        """Mean over tokens of the last hidden states (N, D), texts of similar length together."""
        order = np.argsort([len(text) for text in texts], kind="stable")
        states_ND = np.empty((len(texts), self.model.config.hidden_size), np.float16)
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            batch = self.tokenizer(
                [texts[row] for row in rows], truncation=True, max_length=self.max_length, padding=True,
                return_tensors="pt",
            )  # fmt: skip
            hidden_BTD = self.model(**batch).last_hidden_state
            mask_BT1 = batch["attention_mask"].unsqueeze(-1).float()
            states_ND[rows] = ((hidden_BTD * mask_BT1).sum(1) / mask_BT1.sum(1)).numpy()
        return states_ND


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of the data set")
    parser.add_argument("cache", type=Path, help="folder for the states")
    parser.add_argument("--max-length", type=int, default=256)
    arguments = parser.parse_args()
    for split, rows in zip(("train", "dev"), splits(arguments.data), strict=True):
        pooled_states(
            rows["text"],
            arguments.cache / f"states-{split}-{arguments.max_length}",
            arguments.max_length,
        )


if __name__ == "__main__":
    main()
