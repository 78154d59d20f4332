"""Whether a fusion should learn from out-of-fold scores of all documents rather than from dev alone.

    python tools/study/out_of_fold.py DATA OUT --tasks few
    python tools/study/out_of_fold.py DATA OUT --tasks clinic laws library --settings data.limit.train=150

The tasks are those of `own_data.py`, with the scorers that `xmtc init` writes for them, without a head. In both arms,
scorers are fitted on train and dev together in the end, the fusion is linear, and labels that occur together are no
score. Arm `dev`: the fusion and the threshold learn from dev, scored by scorers fitted on train. Arm `folds`: they
learn from all documents, each scored by scorers that were fitted on the other folds, with label counts of these folds.

Prints a JSON line for each task and arm: metrics of test in percent.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from own_data import TASKS, _xmtc, make
from xmtc.config.load import load_config
from xmtc.data.words import Words
from xmtc.evaluate.decisions import outcomes_of
from xmtc.evaluate.evaluation import evaluate
from xmtc.fusion.ensemble import names_of
from xmtc.fusion.fusion import Fusion
from xmtc.fusion.logistic import Logistic
from xmtc.fusion.occurrences import Occurrences
from xmtc.fusion.pairs import Pairs
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.scorers.base import Features, Scorer, Training
from xmtc.scorers.label_text import names_of_labels
from xmtc.scorers.predictions import SparsePredictions
from xmtc.stages.prepare import prepare_corpus
from xmtc.stages.scorers import pooled_states
from xmtc.stages.worker import build_worker

TOP = 100
KEYS = ("p@1", "ndcg@5", "micro_f1", "macro_f1")
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Part:
    """Documents that scorers were not fitted on.

    Attributes:
        pairs: their candidates.
        gold_NL: their labels.
        counts_L: documents of each label among those that the scorers were fitted on.
    """

    pairs: Pairs
    gold_NL: sparse.csr_array
    counts_L: NDArray[np.int64]

    def half(self, start: int) -> "Part":
        """Every second document."""
        return replace(self, pairs=self.pairs.take(slice(start, None, 2)), gold_NL=self.gold_NL[start::2])


class Study:
    """The documents of all splits, in the order of `SPLITS`, and the scorers of a task."""

    def __init__(self, config: RunConfig) -> None:
        self.config, corpus = config, prepare_corpus(config)
        worker = build_worker(config, RunPaths.of(config))
        splits = [corpus.split(name) for name in SPLITS]
        words = [split.words() for split in splits]
        self.ends = np.cumsum([len(split) for split in splits])
        self.words = Words(sparse.vstack([one.counts_NC for one in words], format="csr"), words[0].vocabulary)
        self.states_ND = np.concatenate([pooled_states(worker, split, cached=False) for split in splits])
        self.gold_NL = sparse.csr_array(sparse.vstack([split.label_matrix() for split in splits])).astype(bool)
        self.labels = corpus.labels
        self.names = names_of_labels(corpus.labels, corpus.vocabulary(), lambda texts: worker.embed(texts).numpy())

    def features(self, rows: NDArray[np.int64]) -> Features:
        """What scorers read of some documents."""
        counts_NC = sparse.csr_array(self.words.counts_NC)[rows]
        return Features(Words(counts_NC, self.words.vocabulary), self.states_ND[rows])

    def counts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many of some documents have each label."""
        return np.asarray(self.gold_NL[rows].sum(axis=0)).ravel().astype(np.int64)

    def fit(self, rows: NDArray[np.int64]) -> list[Scorer]:
        """Fit all scorers on some documents."""
        training = Training(self.features(rows), self.gold_NL[rows], self.names)
        return [settings.fit(training) for settings in self.config.model.fitted]

    def part(self, fitted_on: NDArray[np.int64], rows: NDArray[np.int64]) -> Part:
        """Score some documents by scorers that are fitted on others."""
        scored = [scorer.score(self.features(rows)) for scorer in self.fit(fitted_on)]
        pairs = Pairs.of(scored, self.config.model.fusion.candidates)
        return Part(pairs, self.gold_NL[rows], self.counts(fitted_on))

    def fusion(self, parts: Sequence[Part]) -> Fusion:
        """Fit common coefficients, without frequency bins."""
        together = Pairs.concatenate([part.pairs for part in parts])
        maps = together.maps(together.right(sparse.csr_array(sparse.vstack([part.gold_NL for part in parts]))))
        inputs_PX = [part.pairs.inputs(maps, part.counts_L)[:, part.pairs.used].T for part in parts]
        right_P = np.concatenate([part.pairs.right(part.gold_NL)[part.pairs.used] for part in parts])
        one_bin_L, label_P = np.zeros(len(self.labels), np.int64), np.zeros(len(right_P), np.int32)
        combination = Logistic.fit(np.concatenate(inputs_PX), right_P, label_P, one_bin_L)
        names = names_of(self.config.model.fitted)
        return Fusion(tuple(names), maps, combination, Occurrences.without_pairs(one_bin_L))

    def arm(self, parts: Sequence[Part], test: Part) -> dict[str, float]:
        """Fuse the test documents; the threshold is tuned on halves of the documents to learn from."""
        fused, gold = [], []
        for start in (0, 1):
            fusion = self.fusion([part.half(1 - start) for part in parts])
            fused += [_fuse(fusion, part.half(start)) for part in parts]
            gold += [part.half(start).gold_NL for part in parts]
        known = SparsePredictions(
            np.concatenate([one.label_ids_NK for one in fused]), np.concatenate([one.scores_NK for one in fused])
        )
        decision = outcomes_of(known, sparse.csr_array(sparse.vstack(gold)), calibrated=True).tuned("micro")
        labels, config = replace(self.labels, train_counts=test.counts_L), replace(self.config.evaluate, resamples=0)
        unseen, documents = _fuse(self.fusion(parts), test), int(self.ends[1])
        found = evaluate(unseen, test.gold_NL, labels, documents, config=config, decision=decision).metrics
        return {key: round(100 * found[key], 1) for key in KEYS} | {"threshold": round(decision.threshold, 3)}

    def arms(self, folds: int) -> Iterator[tuple[str, dict[str, float]]]:
        """Both arms."""
        train, dev, test = np.split(np.arange(self.ends[-1]), self.ends[:-1])
        every = np.concatenate([train, dev])
        whole = self.part(every, test)
        yield "dev", self.arm([self.part(train, dev)], whole)
        fold_N = np.random.default_rng(1).permutation(every % folds)
        parts = [self.part(every[fold_N != fold], every[fold_N == fold]) for fold in range(folds)]
        yield f"{folds} folds", self.arm(parts, whole)


def _fuse(fusion: Fusion, part: Part) -> SparsePredictions:
    return replace(fusion, occurrences=Occurrences.without_pairs(part.counts_L)).fuse(part.pairs).top(TOP)


def main() -> None:
    """Run `init` on each task, and print a line for each arm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), required=True)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--settings", nargs="*", default=[], help="KEY=VALUE over what `init` writes")
    arguments = parser.parse_args()
    for task in arguments.tasks:
        folder = make(task, arguments.data, arguments.out)
        written = folder.with_suffix(".yaml")
        written.unlink(missing_ok=True)
        _xmtc(arguments.out, "init", str(folder), "--budget", "10m", "-o", str(written))
        places = [f"data.corpus={arguments.out.absolute() / 'corpora' / task}", "name=out_of_fold"]
        config = load_config(RunConfig, written, [*places, "model.head={kind: none}", *arguments.settings])
        for arm, found in Study(config).arms(arguments.folds):
            print(json.dumps({"task": task, "settings": arguments.settings, "arm": arm} | found), flush=True)


if __name__ == "__main__":
    main()
