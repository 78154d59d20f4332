"""Ideas for more quality over the whole model, and related labels where encoder, tree and head are absent.

    python tools/study/hypotheses.py data --corpus eurlex57k --documents 5000 --dev-documents 2000 \
        --record docs/benchmarks/hypotheses
    python tools/study/hypotheses.py --tables docs/benchmarks/hypotheses/*.jsonl

docs/benchmarks/hypotheses.md has the protocol. A run of one corpus, seed and part has a record of its own in the folder
that is given; runs with a record are skipped. The part `model` trains what is shipped. One idea compares it with
xcolumns, which only this study needs: pip install xcolumns. The part `words` does without encoder, tree and head, and
takes minutes.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from drawn_runs import (
    CONFIGS,
    METRICS,
    RARE,
    RESAMPLES,
    Line,
    ablation_of,
    differences,
    figures,
    options,
    overrides,
    read,
    record,
    trained,
)
from few_documents import mean_states
from leave_one_out import configuration, drawn_source
from tried_scorers import (
    Fourier,
    NamesWithoutHubs,
    NeighboursWithoutHubs,
    Relation,
    heaviest_words,
    hierarchy,
    names_with_hubs,
    names_with_words,
)
from xmtc.config.load import load_config
from xmtc.evaluate.decisions import Decided, HalfOutcomes
from xmtc.evaluate.evaluation import Evaluation, evaluate
from xmtc.fusion.decision import Decision
from xmtc.fusion.fusion import fit_fusion
from xmtc.fusion.pairs import Pairs
from xmtc.run.config import RunConfig
from xmtc.scorers.base import Features, Scorer, Training
from xmtc.scorers.label_embeddings import LabelEmbeddings
from xmtc.scorers.label_text import names_of_labels
from xmtc.scorers.predictions import SparsePredictions
from xmtc.scorers.state_neighbours import StateNeighbours
from xmtc.stages.ablation import Ablation
from xmtc.stages.fused_predictor import FusedPredictor
from xmtc.stages.measuring import quick_evaluation

Pooling = Literal["mean", "maximum"]
Ascent = Callable[..., NDArray[np.floating]]

WORDS = {
    "eurlex57k": (
        "eurlex57k_scorers.yaml",
        ("data.source.labels.parents=parents",),
    ),
    "gnd_tib": (
        "gnd_minilm.yaml",
        (
            "model.head={kind: none}",
            "model.scorers=[{kind: linear, penalty: 0.5, prune: 0.3, most_terms: 10000}, {kind: word_neighbours}, "
            "{kind: word_neighbours, fields: [title]}, {kind: label_text}, {kind: label_text, fields: [title]}]",
        ),
    ),
}
"""Configurations without encoder, tree and head."""
OVER_PREDICTION = "macro_f1_predicted"
"""Macro-F1 over labels that are present or predicted, by which decisions are compared, too."""
NAMES, NEIGHBOURS = "label_embeddings", "state_neighbours"
SHIPPED_NAMES = "names as they are shipped"
HUBLESS_NAMES, HUBLESS_NEIGHBOURS = "names without hubs", "neighbours without hubs"
FOURIER, EXTENDED_NAMES = "Fourier features", "names with words"


@dataclass(frozen=True)
class Idea:
    """What an idea changes in the set of scorers.

    Attributes:
        instead: new scorers by the name of the one that goes.
        more: scorers that join.
    """

    instead: Mapping[str, str]
    more: Sequence[str] = ()

    def scorers(self, everything: Sequence[str]) -> list[str]:
        """Return the names of the scorers that are fused."""
        return [*(self.instead.get(name, name) for name in everything), *self.more]


IDEAS = {
    "hubs among names": Idea({NAMES: HUBLESS_NAMES}),
    "hubs among names, as shipped": Idea({NAMES: SHIPPED_NAMES}),
    "hubs among documents": Idea({NEIGHBOURS: HUBLESS_NEIGHBOURS}),
    "hubs among both": Idea({NAMES: HUBLESS_NAMES, NEIGHBOURS: HUBLESS_NEIGHBOURS}),
    "Fourier features": Idea({}, [FOURIER]),
    "names with words": Idea({NAMES: EXTENDED_NAMES}),
    "names with words, beside names": Idea({}, [EXTENDED_NAMES]),
}


def main() -> None:
    arguments = parse()
    paths = arguments.tables or []
    if not arguments.tables:
        for seed in arguments.seeds:
            for part in arguments.parts:
                name = f"{arguments.corpus}-{seed}-{part}.jsonl"
                paths.append(arguments.record / name)
                if not paths[-1].exists():
                    record(paths[-1], PARTS[part](arguments, seed))
    print_table([line for path in paths for line in read(path)])


def parse() -> argparse.Namespace:
    parser = options(__doc__, "runs/hypotheses")
    parser.add_argument("--corpus", choices=WORDS, help="name of a data set")
    parser.add_argument("--documents", type=int, help="training documents to draw")
    parser.add_argument("--dev-documents", type=int, help="dev documents to draw")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    measures_model = not arguments.tables and "model" in arguments.parts
    if measures_model and find_spec("xcolumns") is None:
        parser.error("the part model needs xcolumns: pip install xcolumns")
    return arguments


def measure_model(arguments: argparse.Namespace, seed: int) -> Iterator[Line]:
    """Train the shipped configuration, and yield what it reaches and what each idea adds to it.

    The whole model has the plain cosines of names that were shipped before hubs were tried.
    """
    folder = arguments.work / f"{arguments.corpus}-{seed}"
    predicts = trained(configuration(arguments, folder, seed))
    everything = predicts.ensemble.names
    scorers = predicts.ensemble.scorers | tried_scorers(predicts)
    predicts.ensemble = replace(predicts.ensemble, scorers=scorers)
    ablation = ablation_of(predicts)
    facts = {"corpus": arguments.corpus, "seed": seed}
    sets = [everything, *(idea.scorers(everything) for idea in IDEAS.values())]
    logits = ablation.cross_fit.logits([ablation.fusion_of(names) for names in sets])
    best = candidates(ablation, next(logits))
    whole = evaluation(ablation, best)
    yield facts | {"idea": "whole model"} | figures(whole)
    for idea, logits_NK in zip(IDEAS, logits, strict=True):
        changed = evaluation(ablation, candidates(ablation, logits_NK))
        yield facts | gained(idea, changed, "whole model", whole)
    yield from (facts | line for line in rules(ablation, best))


def tried_scorers(predicts: FusedPredictor) -> dict[str, Scorer]:
    """Return the scorers of all ideas, fitted on the run's training documents, and names with hubs for the others."""
    worker = predicts.worker
    corpus = worker.corpus
    split = worker.train
    states_ND = mean_states(corpus, split.name)
    training = Training(
        Features(split.words(), states_ND),
        split.label_matrix(),
        names_of_labels(corpus.labels, corpus.vocabulary()),
    )
    names = predicts.ensemble.scorers[NAMES]
    neighbours = predicts.ensemble.scorers[NEIGHBOURS]
    assert isinstance(names, LabelEmbeddings), "the usual scorer"
    assert isinstance(neighbours, StateNeighbours), "the usual scorer"
    plain = names_with_hubs(names)
    return {
        NAMES: plain,
        SHIPPED_NAMES: names,
        HUBLESS_NAMES: NamesWithoutHubs.of(plain, states_ND),
        HUBLESS_NEIGHBOURS: NeighboursWithoutHubs.of(neighbours),
        FOURIER: Fourier.fit(training),
        EXTENDED_NAMES: names_with_hubs(
            names_with_words(
                training, lambda texts: worker.embed(texts).float().numpy()
            )
        ),
    }


def rules(ablation: Ablation, best: SparsePredictions) -> Iterator[Line]:
    """Yield what the rule `macro` reaches, and what coordinate ascent on the same probabilities has more."""
    from xcolumns.block_coordinate import (  # pyright: ignore[reportMissingImports]
        predict_optimizing_macro_f1_score_using_bc as ascend,
    )

    worker = ablation.worker
    halves = HalfOutcomes.of(best, worker.dev.label_matrix(), calibrated=True)
    tuned = halves.tuned("macro", worker.corpus.labels.train_counts)
    by_rule = evaluation(ablation, best, tuned)
    yield {"idea": "rule macro"} | figures(by_rule)
    made_NK = decided_together(best, ascend)
    decision = Decided(tuned.threshold, None, "macro", made_NK=made_NK)
    by_ascent = evaluation(ablation, best, decision)
    line = gained("macro-F1 by coordinate ascent", by_ascent, "rule macro", by_rule)
    line["gains"] |= differences(by_ascent, by_rule, [OVER_PREDICTION])
    yield line


def decided_together(best: SparsePredictions, ascend: Ascent) -> NDArray[np.bool_]:
    """Decide candidates (N, K) by an optimiser of all documents' expected macro-F1.

    Args:
        best: candidates and their probabilities.
        ascend: gives decisions (N, C), of probabilities (N, C), a number of labels for each document (0: any) and a
            seed. It gets a dense table: with a sparse one, xcolumns 0.0.2 doesn't update what it expects of a label.
    """
    used_NK = best.label_ids_NK >= 0
    rows, _ = np.nonzero(used_NK)
    labels, columns = np.unique(best.label_ids_NK[used_NK], return_inverse=True)
    chances_NC = np.zeros((len(best), len(labels)), np.float32)
    chances_NC[rows, columns] = best.scores_NK[used_NK]
    made_NC = ascend(chances_NC, k=0, seed=0)
    made_NK = np.zeros(used_NK.shape, np.bool_)
    made_NK[used_NK] = made_NC[rows, columns] > 0
    return made_NK


def measure_words(arguments: argparse.Namespace, seed: int) -> Iterator[Line]:
    """Fit scorers over words, and yield what they reach and what related labels add to them."""
    folder = arguments.work / f"{arguments.corpus}-{seed}"
    base, changes = WORDS[arguments.corpus]
    settings = [
        *overrides(folder / "words", arguments.corpus, seed),
        *drawn_source(arguments, folder, seed),
        *changes,
    ]
    ablation = ablation_of(trained(load_config(RunConfig, CONFIGS / base, settings)))
    facts = {"corpus": arguments.corpus, "seed": seed}
    plain = evaluation(ablation, candidates(ablation, ablation.logits_NK))
    yield facts | {"idea": "scorers over words"} | figures(plain)
    for idea, (relations, pooling) in related_labels(ablation).items():
        logits_NK = with_related_labels(ablation, relations, pooling)
        changed = evaluation(ablation, candidates(ablation, logits_NK))
        yield facts | gained(idea, changed, "scorers over words", plain)


PARTS = {"model": measure_model, "words": measure_words}


def related_labels(
    ablation: Ablation,
) -> dict[str, tuple[Mapping[str, Relation], Pooling]]:
    """Return the relations of each idea, and how they are pooled."""
    train = ablation.worker.train
    labels_NL = train.label_matrix()
    words_LV = heaviest_words(train.words().together(), labels_NL)
    by_words = {"shared words": Relation.nearest(words_LV)}
    documents_LN = labels_NL.T.tocsr().astype(np.float32)
    by_documents = {"co-occurrence": Relation.nearest(documents_LN)}
    by_parents = hierarchy(ablation.worker.corpus.labels)
    ideas: dict[str, tuple[Mapping[str, Relation], Pooling]] = {}
    poolings: tuple[Pooling, ...] = ("mean", "maximum")
    for relations in filter(None, (by_words, by_documents, by_parents)):
        for pooling in poolings:
            ideas[f"{', '.join(relations)}: {pooling}"] = relations, pooling
    ideas["all related labels: maximum"] = (
        by_words | by_documents | by_parents,
        "maximum",
    )
    return ideas


def with_related_labels(
    ablation: Ablation, relations: Mapping[str, Relation], pooling: Pooling
) -> NDArray[np.float64]:
    """Compute the logits (N, K) of dev with related labels as more scorers, each half by a fusion of the other."""
    fit = ablation.cross_fit
    names = ablation.ensemble.names
    kind = ablation.fusion_of(names).kind

    def complete(pairs: Pairs, chances_NK: NDArray[np.floating]) -> Pairs:
        more_SNK = [
            relation.scores(pairs.label_ids_NK, chances_NK, pooling)
            for relation in relations.values()
        ]
        return replace(pairs, scores_SNK=np.concatenate([pairs.scores_SNK, more_SNK]))

    ids_NK = fit.pairs.label_ids_NK
    whole = replace(fit.pairs, given_PP=fit.occurrences.between(ids_NK))
    logits_NK = np.empty(ids_NK.shape)
    for learned, fused in ((1, 0), (0, 1)):
        pairs = whole.take(slice(learned, None, 2))
        others = whole.take(slice(fused, None, 2))
        known = fit.gold_NL[learned::2], fit.occurrences
        first = fit_fusion(names, pairs, *known, "linear")
        more = [*names, *relations]
        pairs = complete(pairs, expit(first.logits(pairs)))
        fusion = fit_fusion(more, pairs, *known, kind)
        others = complete(others, expit(first.logits(others)))
        logits_NK[fused::2] = np.where(others.used, fusion.logits(others), -np.inf)
    return logits_NK


def candidates(ablation: Ablation, logits_NK: NDArray[np.float64]) -> SparsePredictions:
    """Return the best labels of dev."""
    return ablation.candidates(logits_NK).top(ablation.worker.config.evaluate.top_k)


def evaluation(
    ablation: Ablation, best: SparsePredictions, decision: Decision | None = None
) -> Evaluation:
    """Measure dev with a decision, or with the usual one, which is tuned on the same documents."""
    worker = ablation.worker
    gold_NL = worker.dev.label_matrix()
    if decision is None:
        return quick_evaluation(
            worker, best, gold_NL, calibrated=True, resamples=RESAMPLES
        )
    config = replace(worker.config.evaluate, resamples=RESAMPLES)
    return evaluate(
        best,
        gold_NL,
        worker.corpus.labels,
        len(worker.train),
        config=config,
        decision=decision,
    )


def gained(idea: str, changed: Evaluation, over: str, base: Evaluation) -> Line:
    """Return the line of an idea: figures, and what it has more than what it is compared with."""
    gains = {"over": over, "gains": differences(changed, base)}
    return {"idea": idea} | figures(changed) | gains


def print_table(lines: Sequence[Line]) -> None:
    """Print what each idea gains in the mean of its seeds, as a Markdown table."""
    titles = [f"{title}, points" for title in METRICS.values()]
    print(f"| idea | corpus | seeds | {' | '.join(titles)} | labels with {RARE} |")
    print("|---" * (len(titles) + 4) + "|")
    reached = {
        (line["corpus"], line["seed"], line["idea"]): line[RARE] for line in lines
    }
    gains = [line for line in lines if "gains" in line]
    for idea, corpus in dict.fromkeys((line["idea"], line["corpus"]) for line in gains):
        own = [
            line for line in gains if (line["idea"], line["corpus"]) == (idea, corpus)
        ]
        cells = []
        for metric in METRICS:
            mean, low, high = np.mean([line["gains"][metric] for line in own], axis=0)
            cells.append(f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]")
        rare = [
            line[RARE] - reached[corpus, line["seed"], line["over"]]
            for line in own
            if line[RARE] is not None
        ]
        cells.append(f"{np.mean(rare):+.2f}" if rare else "–")
        print(f"| {idea} | {corpus} | {len(own)} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
