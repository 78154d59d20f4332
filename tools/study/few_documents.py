"""Does an encoder add anything where documents are few and their labels are codes without names?

    python tools/study/leave_one_out.py data --corpus eurlex57k --documents 5000 --dev-documents 2000 --seeds 4 \
        --work runs/leave_one_out --record laws4.jsonl
    python tools/study/few_documents.py runs/leave_one_out/eurlex57k-4

For each seed, documents are drawn from those that the run has encoded. Fusion and threshold are fitted on one half of
the run's dev, and measured on the other. Names of labels are not used. Compared are what words say, and the same with
what pooled states say: the votes of the nearest states, and a ridge regression on states, which stands for a head,
because it reads the same. Prints JSON lines: what each set of scorers reaches, and in points with 95 % intervals of
paired resamples what everything has more.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from quality import Clock, Measured, candidates, fit_all, fused
from quality_data import Case, Rows, case_of
from xmtc.data.config import WordsConfig
from xmtc.data.corpus import Corpus
from xmtc.data.fields import FieldText
from xmtc.data.hidden_cache import HiddenCache
from xmtc.models.poolings.pooling import FixedPoolings
from xmtc.scorers.base import Features
from xmtc.scorers.config import (
    LinearConfig,
    RankedWordsConfig,
    ScorerSettings,
    StateNeighboursConfig,
    WordNeighboursConfig,
)
from xmtc.scorers.predictions import SparsePredictions

FIELDS = ("title", "text")
WEIGHTS: dict[str, float] = {"title": 1, "text": 2}
SCORERS: dict[str, ScorerSettings] = {
    "ranked_words": RankedWordsConfig(fields=WEIGHTS),
    "linear": LinearConfig(penalty=0.1, prune=0.2, fields=WEIGHTS),
    "word_neighbours": WordNeighboursConfig(),
    "state_neighbours": StateNeighboursConfig(),
}
RIDGE = "ridge on states"
WORDS = ("ranked_words", "linear", "word_neighbours")
STATES = ("state_neighbours", RIDGE)
SETS = (
    (*WORDS, *STATES),
    WORDS,
    (*WORDS, "state_neighbours"),
    ("ranked_words", "linear"),
    ("ranked_words", "word_neighbours"),
    ("ranked_words",),
)
"""Everything, and fewer."""
PENALTY = 0.1
CANDIDATES = 50
WIDTH = 384
"""Of MiniLM's states."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="a folder of leave_one_out.py")
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    for seed in range(1, arguments.seeds + 1):
        case = drawn(arguments.run, arguments.documents, seed)
        compare(case, f"{arguments.documents} laws, seed {seed}")


def drawn(run: Path, documents: int, seed: int) -> Case:
    """Draw training documents that the run has encoded, take its dev, and read the states of both."""
    corpus = Corpus.open(run / "corpus")
    parts: list[Rows] = []
    states = []
    for split in ("train", "dev"):
        place_of = {doc: at for at, doc in enumerate(corpus.split(split).doc_ids())}
        rows = pq.read_table(run / "data" / f"{split}.parquet").to_pylist()
        rows = [row for row in rows if row["doc_id"] in place_of]
        if split == "train":
            order = np.random.default_rng(seed).permutation(len(rows))
            rows = [rows[place] for place in order[:documents]]
        places = np.array([place_of[row["doc_id"]] for row in rows])
        states.append(mean_states(corpus, split)[places])
        texts = [FieldText.join([row[name] for name in FIELDS], ()) for row in rows]
        parts.append({"text": texts, "labels": [row["labels"] for row in rows]})
    words = WordsConfig(stems=6)
    train, dev = parts
    case = case_of(train, dev, {}, words, FIELDS, (), single_label=False)
    known = Features(case.training.features.words, states[0])
    training = replace(case.training, features=known)
    held_out = Features(case.held_out.words, states[1])
    return replace(case, training=training, held_out=held_out)


def mean_states(corpus: Corpus, split: str) -> NDArray[np.float32]:
    """Read the mean states (N, D) that a run with MiniLM has left beside its corpus."""
    (folder,) = (corpus.path / "pooled").iterdir()
    documents = np.arange(len(corpus.split(split)))
    lengths_N = np.full(len(documents), FixedPoolings.count)
    cache = HiddenCache.open(folder / split, folder.name, lengths_N, WIDTH)
    assert cache is not None, "the run has encoded its documents"
    return np.stack([states_KD[0].numpy() for states_KD in cache.read(documents)])


def ridge(case: Case) -> SparsePredictions:
    """Predict the held-out documents by ridge regression on standardised states."""
    known_ND = case.training.features.states_ND
    states_ND = case.held_out.states_ND
    assert known_ND is not None, "states are read"
    assert states_ND is not None, "states are read"
    mean_D = known_ND.mean(axis=0)
    spread_D = np.maximum(known_ND.std(axis=0), 1e-6)  # some dimensions are constant
    known_ND = (known_ND - mean_D) / spread_D
    gram_DD = known_ND.T @ known_ND
    gram_DD += PENALTY * np.trace(gram_DD) / len(gram_DD) * np.eye(len(gram_DD))
    labels_NL = case.training.labels_NL.astype(np.float32)
    weights_DL = np.linalg.solve(gram_DD, labels_NL.T.dot(known_ND).T)
    scores_NL = (states_ND - mean_D) / spread_D @ weights_DL
    best_NK = np.argsort(-scores_NL, axis=1)[:, :CANDIDATES].astype(np.int32)
    return SparsePredictions(best_NK, np.take_along_axis(scores_NL, best_NK, axis=1))


def compare(case: Case, name: str) -> None:
    """Fit everything, and print what each set of scorers reaches."""
    clock = Clock()
    scorers = dict(zip(SCORERS, fit_all(case, SCORERS, clock), strict=True))
    by_states = ridge(case)
    measured = Measured(name, case, resamples=300)
    for names in SETS:
        chosen = [scorers[one] for one in names if one != RIDGE]
        more = [by_states] if RIDGE in names else []
        labels = len(case.labels)
        pairs = candidates(chosen, case.held_out, more, labels)
        system = " + ".join(names)
        print(json.dumps(measured.line(system, fused(case, names, pairs))), flush=True)
    first = " + ".join(SETS[0])
    for names in SETS[1:]:
        print(json.dumps(measured.difference(first, " + ".join(names))), flush=True)


if __name__ == "__main__":
    main()
