"""The study of hypotheses: what it tries does what docs/benchmarks/hypotheses.md says."""

from dataclasses import replace

import numpy as np
from scipy import sparse

import drawn_runs
import hypotheses
import tried_scorers
from scorer_cases import LABELS, training, unseen
from tried_scorers import (
    PENALTIES,
    Fourier,
    NamesWithoutHubs,
    NeighboursWithoutHubs,
    Relation,
    names_with_hubs,
)
from xmtc.data.labels import LabelTable
from xmtc.scorers.base import LabelNames
from xmtc.scorers.config import LabelEmbeddingsConfig, StateNeighboursConfig
from xmtc.scorers.label_embeddings import NEAREST
from xmtc.scorers.predictions import SparsePredictions


def units(states, mean):
    centred = states - mean
    return centred / np.linalg.norm(centred, axis=1, keepdims=True)


def best_mean(cosines):
    return np.sort(cosines, axis=1)[:, -NEAREST:].mean(axis=1)


def test_neighbours_without_hubs_are_nearest_by_csls():
    known, vocabulary = training()
    queries, _ = unseen(vocabulary)
    scorer = NeighboursWithoutHubs.of(StateNeighboursConfig(neighbours=5).fit(known))

    rows, corrected = scorer.nearest(queries)

    mean = known.features.states_ND.mean(axis=0)
    vectors = units(known.features.states_ND, mean)
    among = vectors @ vectors.T
    np.fill_diagonal(among, -1)
    cosines = units(queries.states_ND, mean) @ vectors.T
    csls = 2 * cosines - best_mean(cosines)[:, None] - best_mean(among)
    np.testing.assert_array_equal(rows, np.argsort(-csls, axis=1)[:, :5])
    np.testing.assert_allclose(
        2 * corrected, np.sort(csls, axis=1)[:, :-6:-1], atol=1e-5
    )


def test_names_without_hubs_are_scored_by_csls():
    known, vocabulary = training()
    queries, _ = unseen(vocabulary)
    owners = np.arange(2 * LABELS) // 2
    states = np.random.default_rng(1).normal(size=(len(owners), 6)).astype(np.float32)
    names = LabelNames(
        ["name"] * len(owners),
        owners,
        sparse.csr_array((len(owners), len(vocabulary))),
        states,
    )
    plain = LabelEmbeddingsConfig().fit(
        replace(known, names=names),
    )

    plain = names_with_hubs(plain)
    scores = NamesWithoutHubs.of(plain, known.features.states_ND).score(queries)

    mean = known.features.states_ND.mean(axis=0)
    vectors = units(states, states.mean(axis=0))
    hubs = best_mean(vectors @ units(known.features.states_ND, mean).T)
    cosines = units(queries.states_ND, mean) @ vectors.T
    csls = 2 * cosines - best_mean(cosines)[:, None] - hubs
    of_labels = csls.reshape(len(csls), LABELS, 2).max(axis=2)
    np.testing.assert_allclose(2 * scores.scores_NL, of_labels, atol=1e-5)


def test_ridge_takes_the_penalty_that_leaves_out_best():
    rng = np.random.default_rng(2)
    features = rng.normal(size=(30, 12)).astype(np.float32)
    features -= features.mean(axis=0)
    labels = features[:, :3] + rng.normal(size=(30, 3)) / 3 > 0.5
    mean_value = np.linalg.eigvalsh(features.T @ features).mean()

    def solved(rows, share):
        own = features[rows] - features[rows].mean(axis=0)
        gram = own.T @ own + share * mean_value * np.eye(features.shape[1])
        return np.linalg.solve(gram, own.T @ labels[rows].astype(float))

    def left_out_error(share):
        error = 0.0
        for row in range(len(features)):
            others = np.arange(len(features)) != row
            own = features[row] - features[others].mean(axis=0)
            guess = own @ solved(others, share) + labels[others].mean(axis=0)
            error += np.square(labels[row] - guess).sum()
        return error

    weights = tried_scorers.ridge(features, sparse.csr_array(labels))

    best = min(PENALTIES, key=left_out_error)
    assert best not in (PENALTIES[0], PENALTIES[-1])
    np.testing.assert_allclose(weights, solved(np.arange(30), best), atol=1e-4)


def test_fourier_features_stand_for_a_kernel(monkeypatch):
    monkeypatch.setattr(tried_scorers, "FEATURES", 20_000)
    monkeypatch.setattr(
        tried_scorers,
        "ridge",
        lambda _, labels: np.zeros((20_000, labels.shape[1]), np.float32),
    )
    known, vocabulary = training()
    queries, _ = unseen(vocabulary)
    scorer = Fourier.fit(known)

    features = scorer.features(queries.states_ND) + scorer.centre_F

    states = known.features.states_ND
    apart = np.linalg.norm(states[:, None] - states[None], axis=2)
    width = np.median(apart[np.triu_indices(len(states), k=1)])
    squares = np.square(queries.states_ND[:, None] - queries.states_ND[None]).sum(2)
    kernel = np.exp(-squares / (2 * width**2))
    np.testing.assert_allclose(2 * features @ features.T / 20_000, kernel, atol=0.04)
    share = known.labels_NL.mean(axis=0)
    np.testing.assert_allclose(scorer.score(queries).scores_NL[0], share, atol=1e-6)


def test_names_are_followed_by_words_of_their_label():
    known, _ = training(documents=200)
    asked = []

    def embed(texts):
        asked.extend(texts)
        return np.eye(len(texts), 6, dtype=np.float32)

    scorer = tried_scorers.names_with_words(known, embed)

    assert list(scorer.texts) == asked
    for label, text in enumerate(asked):
        name, *words = text.split(", ")
        assert name == f"w{label} unseen"
        assert words[0] == f"w{label}"
        assert len(words) <= tried_scorers.WORDS_OF_A_NAME


def test_relatives_pass_on_their_probabilities():
    relation = Relation(
        np.array([[1, 2], [0, -1], [3, 1], [-1, -1]]),
        np.array([[1, 0.5], [1, 0], [1, 0.1], [0, 0]], np.float32),
    )
    ids = np.array([[0, 2, 3], [1, -1, -1]], np.int32)
    chances = np.array([[0.2, 0.8, 0.6], [0.9, 0.7, 0.7]])

    np.testing.assert_allclose(
        relation.scores(ids, chances, "maximum"), [[0.4, 0.6, 0], [0, 0, 0]], atol=1e-7
    )
    np.testing.assert_allclose(
        relation.scores(ids, chances, "mean"), [[0.2, 0.3, 0], [0, 0, 0]], atol=1e-7
    )


def test_nearest_labels_are_others_of_greatest_cosine(monkeypatch):
    monkeypatch.setattr(tried_scorers, "_LABELS_AT_ONCE", 5)
    rng = np.random.default_rng(3)
    vectors = rng.random((13, 6)) * (rng.random((13, 6)) < 0.5)
    vectors[4] = 0

    relation = Relation.nearest(sparse.csr_array(vectors.astype(np.float32)))

    lengths = np.maximum(np.linalg.norm(vectors, axis=1), 1e-9)
    cosines = vectors @ vectors.T / lengths[:, None] / lengths
    np.fill_diagonal(cosines, 0)
    expected = np.sort(cosines, axis=1)[:, : -NEAREST - 1 : -1]
    np.testing.assert_allclose(relation.nearness_LR, expected, atol=1e-6)
    assert (relation.relatives_LR[4] == -1).all()
    for label, relatives in enumerate(relation.relatives_LR):
        found = relatives[relatives >= 0]
        np.testing.assert_allclose(
            cosines[label, found], relation.nearness_LR[label, : len(found)], atol=1e-6
        )


def test_hierarchy_gives_parents_children_and_siblings():
    parents = [(), ("a",), ("a",), ("elsewhere",), ("elsewhere", "b")]
    table = LabelTable(list("abcde"), list("abcde"), np.zeros(5, np.int64), parents)

    relations = tried_scorers.hierarchy(table)

    def lists(name):
        rows = relations[name].relatives_LR.tolist()
        return [[label for label in row if label >= 0] for row in rows]

    assert lists("parents") == [[], [0], [0], [], [1]]
    assert lists("children") == [[1, 2], [4], [], [], []]
    assert lists("siblings") == [[], [2], [1], [4], [3]]
    assert tried_scorers.hierarchy(replace(table, parents=None)) == {}


def test_documents_are_decided_together():
    ids = np.array([[7, 2], [2, -1]], np.int32)
    best = SparsePredictions(ids, np.array([[0.9, 0.4], [0.6, 0.3]], np.float32))

    def ascend(chances, *, k, seed):
        assert (k, seed) == (0, 0)
        np.testing.assert_allclose(chances, [[0.4, 0.9], [0.6, 0]])
        return (chances > 0.5).astype(np.float32)

    made = hypotheses.decided_together(best, ascend)

    assert made.tolist() == [[True, False], [True, False]]


def test_the_table_has_the_mean_of_seeds(capsys):
    lines = []
    for seed, gain in ((1, 0.2), (2, 0.6)):
        facts = {"corpus": "laws", "seed": seed}
        ends = [gain, gain - 0.1, gain + 0.1]
        gains = dict.fromkeys(drawn_runs.METRICS, ends)
        lines.append(facts | {"idea": "whole model", "1-5": 10.0})
        idea = {"idea": "hubs", "over": "whole model", "gains": gains, "1-5": 10 + gain}
        lines.append(facts | idea)

    hypotheses.print_table(lines)

    row = capsys.readouterr().out.splitlines()[-1]
    cell = "+0.40 [+0.30, +0.50]"
    assert row == f"| hubs | laws | 2 | {cell} | {cell} | {cell} | +0.40 |"


def test_ideas_change_the_set_of_scorers():
    everything = ["linear", "label_embeddings", "state_neighbours", "head"]
    sets = {name: idea.scorers(everything) for name, idea in hypotheses.IDEAS.items()}

    assert sets["hubs among both"] == [
        "linear",
        "names without hubs",
        "neighbours without hubs",
        "head",
    ]
    assert sets["Fourier features"] == [*everything, "Fourier features"]
    assert len({tuple(names) for names in sets.values()}) == len(sets)
