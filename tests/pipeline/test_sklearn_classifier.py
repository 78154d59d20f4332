"""`xmtc.Classifier` is a scikit-learn estimator: it fits and predicts labels in every form, alone and in pipelines."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import xmtc
from tiny_runs import documents
from xmtc.errors import ConfigError, DataError

ROWS = documents(60)
TEXTS = [f"document {row['text']} and more words" for row in ROWS]
LISTS = [row["labels"] for row in ROWS]
CLASSES = sorted({label for labels in LISTS for label in labels})
INDICATOR = np.array([[label in labels for label in CLASSES] for labels in LISTS])


@pytest.fixture(scope="module")
def of_lists() -> xmtc.Classifier:
    return xmtc.Classifier(budget="1s").fit(TEXTS, LISTS)


def test_it_is_quiet_and_repeats_itself(of_lists, capfd, tmp_path: Path) -> None:
    again = xmtc.Classifier(budget="1s", directory=tmp_path).fit(TEXTS, LISTS)
    assert capfd.readouterr() == ("", "")
    assert (again.predict_proba(TEXTS) == of_lists.predict_proba(TEXTS)).all()
    assert again.run_ == tmp_path / "fit-1"
    assert (tmp_path / "fit-1/eval/test/report.html").is_file()


def test_lists_of_labels(of_lists) -> None:
    predicted = of_lists.predict(TEXTS)
    assert of_lists.classes_.tolist() == CLASSES
    as_matrix = [[label in labels for label in CLASSES] for labels in predicted]
    score = f1_score(INDICATOR, np.array(as_matrix), average="micro")
    assert of_lists.score(TEXTS, LISTS) == pytest.approx(score)
    assert score > 0.6
    weights = np.arange(60)
    assert of_lists.score(TEXTS, LISTS, weights) == pytest.approx(
        f1_score(INDICATOR, as_matrix, average="micro", sample_weight=weights)
    )
    with pytest.raises(DataError, match="60 documents and labels of 3"):
        of_lists.score(TEXTS, LISTS[:3])


def test_probabilities_are_those_of_the_model(of_lists) -> None:
    probabilities = of_lists.predict_proba(pd.Series(TEXTS[:4]))
    assert probabilities.shape == (4, 6)
    for row, labels in zip(
        probabilities, of_lists.model_.predict(TEXTS[:4], top_k=6), strict=True
    ):
        for prediction in labels:
            place = CLASSES.index(prediction.label)
            assert row[place] == pytest.approx(prediction.score)


def test_a_pickled_classifier_is_the_same(of_lists, tmp_path: Path) -> None:
    once = pickle.loads(pickle.dumps(of_lists))
    twice = pickle.loads(pickle.dumps(once))  # before its model was loaded
    for copy in (once, twice):
        assert copy.predict(TEXTS[:5]) == of_lists.predict(TEXTS[:5])
        assert copy.classes_.tolist() == CLASSES
    saved = xmtc.Model.from_pretrained(twice.save(tmp_path / "saved"))
    assert saved.predict(TEXTS[:2]) == of_lists.model_.predict(TEXTS[:2])


def test_a_classifier_that_was_pickled_and_fitted_again_pickles_its_new_model(
    of_lists,
) -> None:
    copy = pickle.loads(pickle.dumps(of_lists)).fit(TEXTS, INDICATOR)
    again = pickle.loads(pickle.dumps(copy))
    assert np.array_equal(again.predict(TEXTS[:5]), copy.predict(TEXTS[:5]))
    assert again.model_.labels.labels == copy.model_.labels.labels


def test_temporary_files_go_with_the_classifier(of_lists) -> None:
    copy = pickle.loads(pickle.dumps(of_lists))
    folder = copy.model_.folder
    assert folder.is_dir()
    del copy
    assert not folder.exists()


def test_a_table_and_an_indicator_matrix_in_a_pipeline(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"title": [text[:20] for text in TEXTS], "year": 1990, "body": TEXTS}
    )
    targets = sparse.csr_matrix(INDICATOR.astype(int))
    classifier = xmtc.Classifier(
        budget="1s", fields=["title", "body"], directory=tmp_path, random_state=5
    )
    lower = FunctionTransformer(lambda rows: rows.assign(body=rows["body"].str.lower()))
    pipeline = make_pipeline(lower, classifier).fit(table, targets)
    predicted = pipeline.predict(table)
    assert sparse.issparse(predicted)
    assert predicted.shape == (60, 6)
    score = f1_score(INDICATOR, predicted.toarray(), average="micro")
    assert pipeline.score(table, targets) == pytest.approx(score)
    assert pipeline.classes_.tolist() == list(range(6))
    assert classifier.feature_names_in_.tolist() == ["title", "body"]
    assert "seed: 5\n" in (tmp_path / "fit-1/config.yaml").read_text()
    one = {"title": "steelery", "body": "steelery steeling"}
    assert classifier.predict_proba([one]).shape == (1, 6)


def test_one_label_each(tmp_path: Path) -> None:
    numbers = np.array([CLASSES.index(labels[0]) for labels in LISTS])
    rows = np.array([[text] for text in TEXTS], object)
    classifier = xmtc.Classifier(budget="1s").fit(rows, numbers)
    predicted = classifier.predict(rows)
    probabilities = classifier.predict_proba(rows)
    assert predicted.dtype == numbers.dtype
    assert (classifier.classes_[probabilities.argmax(1)] == predicted).all()
    assert classifier.score(rows, numbers) == pytest.approx(
        (predicted == numbers).mean()
    )


def test_clones_and_settings() -> None:
    classifier = xmtc.Classifier(budget="3m", random_state=4)
    assert clone(classifier).get_params() == classifier.get_params()
    assert is_classifier(classifier)
    assert repr(classifier) == "Classifier(budget='3m', random_state=4)"
    for use in (classifier.predict, classifier.predict_proba, classifier.save):
        with pytest.raises(NotFittedError):
            use(TEXTS)
    assert pickle.loads(pickle.dumps(classifier)).budget == "3m"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"budget": "soon"}, "budget soon: give hours"),
        ({"random_state": -1}, "seed=-1: give a whole number"),
        ({"random_state": 2**32}, "seed=4294967296: give a whole number below"),
    ],
)
def test_a_wrong_setting_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        xmtc.Classifier(**settings).fit(TEXTS, LISTS)


def test_wrong_documents_are_refused() -> None:
    classifier = xmtc.Classifier(fields=["title"])
    with pytest.raises(DataError, match=r"no column 'title'; there are: .*body"):
        classifier.fit({"body": TEXTS}, LISTS)
    with pytest.raises(DataError, match="60 in text, 2 in labels"):
        xmtc.Classifier().fit(TEXTS, LISTS[:2])
    with pytest.raises(DataError, match="no column 'labels'"):
        xmtc.Classifier().fit({"text": TEXTS})


class Numbers(xmtc.Classifier):
    """Reads rows of numbers as texts, so that scikit-learn's checks, which have nothing else, can be run."""

    def fit(self, X: Any, y: Any = None) -> "Numbers":
        super().fit(_texts_of(X), y)
        return self

    def predict(self, X: Any) -> Any:
        return super().predict(_texts_of(X))

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(_texts_of(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.one_d_array = tags.input_tags.string = False
        return tags


def _texts_of(rows: Any) -> list[str]:
    return [
        " ".join(f"column{place}is{cell:.1f}" for place, cell in enumerate(row))
        for row in np.asarray(rows)
    ]


NOT_OF_TEXT = {
    "check_n_features_in_after_fitting": "it fits 15 documents, a run needs 20, and a text has no number of features",
}


def test_checks_of_scikit_learn_for_texts() -> None:
    with warnings.catch_warnings():
        # scikit-learn says that it has no texts for its other checks
        warnings.simplefilter("ignore", SkipTestWarning)
        results = check_estimator(xmtc.Classifier(budget="1s"))
    assert {result["status"] for result in results} <= {"passed", "skipped"}


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_checks_of_scikit_learn_for_every_estimator() -> None:
    results = check_estimator(
        Numbers(budget="1s"), legacy=False, expected_failed_checks=NOT_OF_TEXT
    )
    failed = {result["check_name"] for result in results if result["status"] == "xfail"}
    assert failed == set(NOT_OF_TEXT)


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_a_search_over_settings() -> None:
    search = GridSearchCV(
        xmtc.Classifier(), {"budget": ["1s", "2s"]}, cv=KFold(2), refit=True
    )
    search.fit(TEXTS, LISTS)
    assert (search.cv_results_["mean_test_score"] > 0).all()
    assert len(search.predict(TEXTS[:2])) == 2
    folds = GridSearchCV(xmtc.Classifier(budget="1s"), {"random_state": [1]}, cv=2)
    assert folds.fit(TEXTS, INDICATOR).best_score_ > 0
