from pathlib import Path

import numpy as np
import pytest

from scorer_cases import training, unseen
from xmtc.errors import CheckpointError, ConfigError
from xmtc.scorers import tree
from xmtc.scorers.config import TreeConfig
from xmtc.scorers.tree import Tree


@pytest.fixture(scope="module")
def fitted():
    cases, vocabulary = training(120)
    return Tree.fit(cases, TreeConfig(trees=1)), unseen(vocabulary, documents=60)


def test_the_best_label_is_a_right_one(fitted) -> None:
    scorer, (features, gold) = fitted
    best = scorer.score(features).top(3)
    assert (
        np.mean([gold[row, ids[0]] for row, ids in enumerate(best.label_ids_NK)]) > 0.7
    )
    assert (best.scores_NK <= 1).all()


def test_saved_and_loaded(fitted, tmp_path: Path) -> None:
    scorer, (features, _) = fitted
    scorer.save(tmp_path)
    before, after = (
        scorer.score(features).top(3),
        Tree.load(tmp_path).score(features).top(3),
    )
    np.testing.assert_array_equal(before.label_ids_NK, after.label_ids_NK)
    np.testing.assert_allclose(before.scores_NK, after.scores_NK, atol=1e-6)


def test_a_damaged_model_is_refused(fitted, tmp_path: Path) -> None:
    fitted[0].save(tmp_path)
    for path in (tmp_path / "omikuji").iterdir():
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="copy it again"):
        Tree.load(tmp_path)


def test_training_prints_nothing(fitted, capfd) -> None:
    Tree.fit(training(40)[0], TreeConfig(trees=1, shape="parabel"))
    assert capfd.readouterr() == ("", "")


def test_a_missing_package_is_named(monkeypatch) -> None:
    monkeypatch.setitem(tree.sys.modules, "omikuji", None)
    with pytest.raises(ConfigError, match=r"xmtc\[trees\]"):
        Tree.fit(training(40)[0], TreeConfig())
