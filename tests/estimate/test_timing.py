"""Times of stages, from made-up speeds."""

import pytest

import tiny_runs
from xmtc.estimate.probe import HeadSpeed, Speeds
from xmtc.estimate.timing import Corpus, stage_seconds
from xmtc.scorers.config import Load

SPEEDS = Speeds(prepare_s=0.001, products=1e9, items=1e7, encode_s={48: 0.1}, cores=2)
HEAD = HeadSpeed(train_s=0.3, step_s=0.0, score_s=0.0)
LOAD = Load(documents=100, labels=6, terms=50, words=20, labels_a_document=2.0, width=32)


def seconds(path, *overrides: str) -> dict[str, float]:
    corpus = Corpus(train=100, dev=20, test=20, load=LOAD)
    return stage_seconds(tiny_runs.load(path, *overrides), corpus, SPEEDS, HEAD)


def test_prototypes_take_a_forward_pass_of_the_head(tmp_path) -> None:
    path = tiny_runs.write_config(tmp_path)
    both, epochs, rows = (
        seconds(path, *overrides)["plant"] for overrides in ((), ("plant.prototypes=false",), ("plant.epochs=0",))
    )
    forward_s = 100 * 0.3 / 3
    assert both - epochs == pytest.approx(forward_s)
    assert both - rows == pytest.approx(2 * 100 * 0.3)
    without = seconds(path, *tiny_runs.RANDOM_START)
    assert "plant" not in without
    encoding_s = 120 * 0.1
    assert without["finetune"] - seconds(path)["finetune"] == pytest.approx(encoding_s), "whichever stage comes first"


def test_an_encoder_that_trains_encodes_dev_after_every_epoch_and_for_evaluation(tmp_path) -> None:
    path = tiny_runs.write_config(tmp_path)
    frozen, trained = (seconds(path, f"finetune.phases=[{{epochs: 2, encoder_layers: {n}}}]") for n in (0, -1))
    assert trained["finetune"] - frozen["finetune"] == pytest.approx(2 * (3 * 100 + 20) * 0.1)
    assert trained["evaluate"] - frozen["evaluate"] == pytest.approx(20 * 0.1)
