"""Made-up corpora: as many labels as asked for, Zipf's law, words that give labels away, the same on every run."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tools_plugins import FOLDER, synthetic_source
from xmtc.data.config import DataConfig, TrainedTokenizerConfig
from xmtc.data.parallel import map_processes
from xmtc.data.prepare import prepare
from xmtc.data.readers import Document
from xmtc.track.progress import Progress


def documents(**settings) -> list[Document]:
    return [
        d
        for d in synthetic_source.SyntheticConfig(**settings)
        .build()
        .read(map_processes, Progress(enabled=False))
        if isinstance(d, Document)
    ]


@pytest.mark.parametrize(("count", "labels"), [(5000, 300), (50, 300)])
def test_every_label_has_a_training_document(count, labels):
    made = documents(documents=count, labels=labels, dev_documents=7, test_documents=3)
    assert Counter(d.split for d in made) == {"train": count, "dev": 7, "test": 3}
    assert (
        len({label for d in made if d.split == "train" for label in d.labels}) == labels
    )
    assert len({d.doc_id for d in made}) == len(made)


def test_the_same_on_every_run_and_another_with_another_seed():
    one, again, other = (
        documents(documents=20, dev_documents=2, seed=seed) for seed in (0, 0, 1)
    )
    assert one == again
    assert one != other
    assert (
        synthetic_source.SyntheticConfig(seed=1).build().fingerprint()
        != synthetic_source.SyntheticConfig().build().fingerprint()
    )


@pytest.mark.parametrize("exponent", [0.7, 1.0, 1.5])
def test_zipf(exponent):
    drawn = synthetic_source.zipf(
        np.random.default_rng(0).random(200_000), 1000, exponent
    )
    assert (drawn.min(), drawn.max() <= 999) == (0, True)
    counts = np.bincount(drawn, minlength=1000)
    wanted = np.log(np.arange(10, 500)) * -exponent
    slope = np.polyfit(wanted, np.log(counts[9:499] + 0.5), 1)[0]
    assert slope == pytest.approx(1.0, abs=0.1)


def test_words_give_labels_away():
    made = documents(
        documents=400, labels=20, dev_documents=1, vocabulary=1000, words_a_document=10
    )
    words = {
        label: set(own)
        for label in {x for d in made for x in d.labels}
        if (own := shared(made, label))
    }
    assert len(words) == 20
    right = [
        label for d in made for label in d.labels if words[label] & set(d.text.split())
    ]
    assert len(right) == sum(len(d.labels) for d in made)


def shared(made: list[Document], label: str) -> list[str]:
    """The words that are far more frequent with the label than without."""
    inside = [Counter(d.text.split()) for d in made if label in d.labels]
    outside = [Counter(d.text.split()) for d in made if label not in d.labels]
    often = Counter(word for c in inside for word in c)
    return [
        w
        for w, n in often.items()
        if n / len(inside) > 0.25 + sum(w in c for c in outside) / len(outside)
    ]


def test_prepare_makes_a_corpus_of_it(tmp_path: Path):
    source = synthetic_source.SyntheticConfig(
        documents=60, labels=500, dev_documents=5, words_a_document=20
    )
    tokenizer = TrainedTokenizerConfig(model="word", vocab_size=2000)
    corpus = prepare(
        DataConfig(source=source, corpus=str(tmp_path / "corpus"), tokenizer=tokenizer),
        None,
    )
    assert len(corpus.labels) == 500
    assert (len(corpus.split("train")), len(corpus.split("dev"))) == (60, 5)
    assert corpus.labels.train_counts.min() >= 1


_LOAD = """
import sys
from xmtc.config.load import load_config
from xmtc.run.config import RunConfig
for path in sys.argv[1:]:
    config = load_config(RunConfig, path, ["mig.signal={kind: exchanged, seed: 1}"])
    print(config.data.source.kind, config.mig.signal.kind)
"""


def test_entry_points_bring_it_and_the_controls_into_the_configurations_of_the_benches():
    configs = sorted(map(str, FOLDER.glob("*.yaml")))
    paths = os.environ | {"PYTHONPATH": os.pathsep.join([str(FOLDER), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, *configs],
        env=paths,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split("\n")[:-1] == ["synthetic exchanged"] * 2, done.stderr
