"""Time, memory and exactness of the token ranking on EURLEX57K, compared with scikit-learn's `mutual_info_score`.

    .venv/bin/python tools/bench/mig.py [--data DIR]

Ranks the tokens of all labels of the 45,000 training documents (whole documents, MiniLM's 30k word pieces), each time
in a new process. Tokenising is not timed; it is done once and kept under build/. scikit-learn is timed on a sample of
pairs and extrapolated. Prints JSON lines; the last line and the exit status say whether all bars hold.
"""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics import mutual_info_score
from tokenizers import Tokenizer

from xmtc.data.pretrained import resolve_pretrained
from xmtc.planting.mig.config import MigConfig
from xmtc.planting.mig.counts import PairCounts
from xmtc.planting.mig.measures import mutual_information
from xmtc.planting.mig.ranking import TokenRanking, rank_tokens

ROOT = Path(__file__).parents[2]
SECONDS, GIB, RATIO, ERROR, LOOKUP_MS = 20.0, 2.0, 50.0, 1e-9, 2.0
DOCUMENTS_PER_BLOCK = 8192
ARRAYS = ("tokens", "offsets", "label_ids", "label_offsets")


class TokenisedSplit:
    """A split of EURLEX57K from the memory-mapped cache, in the form that `rank_tokens` accepts."""

    def __init__(self, cache: Path) -> None:
        arrays = {
            name: np.load(cache / f"{name}.npy", mmap_mode="r") for name in ARRAYS
        }
        self.tokens, self.offsets = arrays["tokens"], arrays["offsets"]
        self.label_ids, self.label_offsets = (
            arrays["label_ids"],
            arrays["label_offsets"],
        )

    def token_blocks(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
        """Blocks of documents, memory-mapped."""
        documents = len(self.offsets) - 1
        for first in range(0, documents, DOCUMENTS_PER_BLOCK):
            offsets = self.offsets[
                first : min(first + DOCUMENTS_PER_BLOCK, documents) + 1
            ]
            yield self.tokens[offsets[0] : offsets[-1]], offsets - offsets[0]

    def label_matrix(self) -> sparse.csr_array:
        """(N, L) bool; the labels are those of the training documents."""
        shape = (len(self.label_offsets) - 1, int(self.label_ids.max()) + 1)
        return sparse.csr_array(
            (np.ones(len(self.label_ids), bool), self.label_ids, self.label_offsets),
            shape=shape,
        )


def main() -> int:
    arguments = parse_arguments()
    tokenizer = load_tokenizer()
    cache = tokenise(find_parquet(arguments.data, "train"), tokenizer)
    special = special_ids(tokenizer)
    runs = [
        measure_ranking(cache, special, tokenizer.get_vocab_size())
        for _ in range(arguments.repeat)
    ]
    ranking = TokenRanking.load(cache / "ranking.safetensors")
    lookup_ms = measure_lookup(ranking)
    pairs = measure_scikit_learn(
        TokenisedSplit(cache), ranking, arguments.pairs, special
    )
    seconds = statistics.median(run["seconds"] for run in runs)
    scored = int(ranking.counts.sum())
    ratio = pairs["cpu_seconds_per_pair"] * scored / seconds
    bars = [
        bar("mig/seconds_median", seconds, SECONDS, seconds < SECONDS),
        bar(
            "mig/peak_gib",
            max(run["peak_gib"] for run in runs),
            GIB,
            max(run["peak_gib"] for run in runs) < GIB,
        ),
        bar("mig/max_error", pairs["max_error"], ERROR, pairs["max_error"] <= ERROR),
        bar("mig/lookup_cpu_ms", lookup_ms, LOOKUP_MS, lookup_ms < LOOKUP_MS),
    ]
    every_pair = len(ranking.label_documents_L) * len(ranking.token_documents_V)
    write(
        name="mig/extrapolation",
        pairs_stored=scored,
        pairs_all=every_pair,
        scikit_learn_hours_stored=pairs["cpu_seconds_per_pair"] * scored / 3600,
        scikit_learn_hours_all=pairs["cpu_seconds_per_pair"] * every_pair / 3600,
        ratio_with_counts_given=pairs["cpu_seconds_per_pair_counts_given"]
        * scored
        / seconds,
    )
    holds = all(bars) and ratio >= RATIO
    write(name="mig", ratio=round(ratio, 1), bar=RATIO, holds=holds)
    return 0 if holds else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(os.environ.get("XMTC_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument(
        "--data",
        type=Path,
        default=default,
        help="folder that holds eurlex57k/train.parquet",
    )
    parser.add_argument(
        "--repeat", type=int, default=3, help="rankings to time; the median counts"
    )
    parser.add_argument(
        "--pairs", type=int, default=400, help="pairs to compare with scikit-learn"
    )
    return parser.parse_args()


def find_parquet(data: Path, split: str) -> Path:
    for path in (data / "eurlex57k" / f"{split}.parquet", data / f"{split}.parquet"):
        if path.is_file():
            return path
    sys.exit(
        f"no eurlex57k/{split}.parquet in {data}: name the folder with --data or XMTC_DATA"
    )


def load_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(
        str(Path(resolve_pretrained("packaged:all-MiniLM-L6-v2")) / "tokenizer.json")
    )
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def special_ids(tokenizer: Tokenizer) -> list[int]:
    vocabulary = tokenizer.get_vocab()
    return [
        vocabulary[token] for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    ]


def tokenise(parquet: Path, tokenizer: Tokenizer) -> Path:
    """Write token and label ids of the documents as .npy files, in a folder named after their source."""
    stat = parquet.stat()
    cache = ROOT / "build" / "bench_mig" / f"{stat.st_size:x}-{stat.st_mtime_ns:x}"
    if (cache / "done").exists():
        return cache
    cache.mkdir(parents=True, exist_ok=True)
    documents = []
    for batch in pq.ParquetFile(parquet).iter_batches(1000, columns=["text"]):
        encoded = tokenizer.encode_batch_fast(
            batch.column(0).to_pylist(), add_special_tokens=False
        )
        documents += [np.array(document.ids, np.int32) for document in encoded]
    label_lists = pq.read_table(parquet, columns=["labels"]).column(0).to_pylist()
    label_names, label_ids = np.unique(np.concatenate(label_lists), return_inverse=True)
    np.save(cache / "label_names.npy", label_names.astype(str))
    np.save(cache / "tokens.npy", np.concatenate(documents))
    np.save(cache / "offsets.npy", np.cumsum([0, *map(len, documents)]))
    np.save(cache / "label_ids.npy", label_ids.astype(np.int32))
    np.save(cache / "label_offsets.npy", np.cumsum([0, *map(len, label_lists)]))
    (cache / "done").touch()
    return cache


def measure_ranking(
    cache: Path, special: list[int], vocab_size: int
) -> dict[str, float]:
    """Run one ranking in a separate process, to measure its peak memory."""
    with ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn")
    ) as executor:
        figures = executor.submit(rank_once, cache, special, vocab_size).result()
    write(name="mig/run", **figures)
    return figures


def rank_once(cache: Path, special: list[int], vocab_size: int) -> dict[str, float]:
    split = TokenisedSplit(cache)
    load, wall_s, cpu_s = os.getloadavg()[0], time.perf_counter(), time.process_time()
    ranking = rank_tokens(
        split, MigConfig(), special_token_ids=special, vocab_size=vocab_size
    )
    figures = {
        "seconds": time.perf_counter() - wall_s,
        "cpu_seconds": time.process_time() - cpu_s,
    }
    peak_gib = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    )  # the whole process, in KiB on Linux
    ranking.save(cache / "ranking.safetensors")
    sizes = {
        "documents": ranking.documents,
        "tokens": len(split.tokens),
        "vocabulary": vocab_size,
        "labels": len(ranking.label_documents_L),
    }
    return {
        **figures,
        "peak_gib": peak_gib,
        "load": load,
        "cores": len(os.sched_getaffinity(0)),
        **sizes,
    }


def measure_lookup(
    ranking: TokenRanking, calls: int = 50, selected: int = 256
) -> float:
    """Median CPU milliseconds of the ranks of 256 random labels, as in every planting step."""
    rng, times = np.random.default_rng(0), []
    table = ranking.table(
        len(ranking.token_documents_V), np.arange(ranking.k + 1, dtype=np.int16)
    )
    for _ in range(calls):
        label_ids = rng.integers(0, len(ranking.label_documents_L), selected)
        start = time.thread_time()
        table(label_ids)
        times.append(time.thread_time() - start)
    return statistics.median(times) * 1e3


def measure_scikit_learn(
    split: TokenisedSplit, ranking: TokenRanking, count: int, special: list[int]
) -> dict[str, float]:
    """Measure CPU time per pair and the largest difference. Half of the pairs are ranked, half drawn from all pairs.

    scikit-learn is charged CPU time, because wall time on a busy machine would flatter our ratio; we charge ourselves
    wall time.
    """
    labels_NL = sparse.csc_array(split.label_matrix())
    document_of_token = np.repeat(np.arange(ranking.documents), np.diff(split.offsets))
    times, given, errors = [], [], []
    for label, token in sample_pairs(ranking, count, special):
        has_token, has_label = (
            np.zeros(ranking.documents, np.int8),
            np.zeros(ranking.documents, np.int8),
        )
        has_token[document_of_token[np.flatnonzero(split.tokens == token)]] = 1
        has_label[
            labels_NL.indices[labels_NL.indptr[label] : labels_NL.indptr[label + 1]]
        ] = 1
        start = time.thread_time()
        expected = mutual_info_score(has_label, has_token)
        times.append(time.thread_time() - start)
        both = int((has_token & has_label).sum())
        errors.append(abs(expected - our_score(ranking, label, token, both)))
        given.append(time_with_counts(ranking, label, token, both))
    figures = {
        "pairs": len(times),
        "cpu_seconds_per_pair": statistics.median(times),
        "cpu_seconds_per_pair_counts_given": statistics.median(given),
        "max_error": max(errors),
    }
    write(name="scikit-learn", **figures)
    return figures


def sample_pairs(
    ranking: TokenRanking, count: int, special: list[int]
) -> list[tuple[int, int]]:
    rng = np.random.default_rng(0)
    label, rank = np.nonzero(ranking.token_ids_LK >= 0)
    chosen = rng.choice(len(label), count // 2, replace=False)
    ranked = zip(
        label[chosen].tolist(),
        ranking.token_ids_LK[label[chosen], rank[chosen]].tolist(),
        strict=True,
    )
    tokens = np.setdiff1d(np.flatnonzero(ranking.token_documents_V), special)
    labels = rng.integers(
        0, len(ranking.label_documents_L), count - count // 2
    ).tolist()
    return [
        *ranked,
        *zip(labels, rng.choice(tokens, len(labels)).tolist(), strict=True),
    ]


def our_score(ranking: TokenRanking, label: int, token: int, both: int) -> float:
    """Our value in float64 from our counts; `both` replaces the count if the ranking does not contain the pair."""
    held = np.flatnonzero(ranking.token_ids_LK[label] == token)
    together = int(ranking.together_LK[label, held[0]]) if held.size else both
    one = np.ones(1, np.int64)
    n_t, n_l = (
        int(ranking.token_documents_V[token]),
        int(ranking.label_documents_L[label]),
    )
    pair = PairCounts(one, one, one * together, one * n_t, one * n_l, ranking.documents)
    return float(mutual_information(pair)[0])


def time_with_counts(ranking: TokenRanking, label: int, token: int, both: int) -> float:
    """scikit-learn's time if it is given the four counts and only computes the formula."""
    n_t, n_l = (
        int(ranking.token_documents_V[token]),
        int(ranking.label_documents_L[label]),
    )
    table = np.array(
        [[both, n_l - both], [n_t - both, ranking.documents - n_t - n_l + both]]
    )
    start = time.thread_time()
    mutual_info_score(None, None, contingency=table)
    return time.thread_time() - start


def bar(name: str, value: float, limit: float, holds: bool) -> bool:
    write(name=name, value=value, bar=limit, holds=holds)
    return holds


def write(**fields: object) -> None:
    rounded = {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in fields.items()
    }
    print(json.dumps(rounded), flush=True)


if __name__ == "__main__":
    sys.exit(main())
