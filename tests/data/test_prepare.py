import itertools
import json
import logging
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import joblib
import numpy as np
import pytest

from corpora import (
    MINILM,
    data_config,
    documents,
    jsonl_source,
    serial,
    small_corpus,
    write_jsonl,
)
from real_data import real_data
from xmtc.data.config import SplitConfig
from xmtc.data.corpus import Corpus
from xmtc.data.manifest import in_use, replaceable
from xmtc.data.prepare import prepare
from xmtc.data.selection import divide_documents
from xmtc.errors import ConfigError, DataError, StorageError
from xmtc.files import locked


def build(config):
    return prepare(config, None, map_unordered=serial)


def left_over(folder: Path) -> list[str]:
    return sorted(
        name for name in os.listdir(folder) if not name.endswith((".lock", ".jsonl"))
    )


def test_corpus_holds_what_the_source_says(tmp_path):
    rows = documents(300)
    corpus = build(
        data_config(tmp_path / "corpus", jsonl_source(tmp_path, rows), max_length=40)
    )
    tokenizer = corpus.tokenizer()
    by_id = {row["id"]: row for row in rows}
    seen = []
    for name in corpus.splits:
        split = corpus.split(name)
        matrix = split.label_matrix().toarray()
        assert matrix.shape == (len(split), len(corpus.labels))
        for i, doc_id in enumerate(split.doc_ids()):
            expected = tokenizer(by_id[doc_id]["text"], add_special_tokens=False)[
                "input_ids"
            ][:40]
            assert split.tokens(i).tolist() == expected
            assert split.lengths[i] == len(expected)
            assert {corpus.labels.labels[j] for j in split.label_ids(i)} == set(
                by_id[doc_id]["labels"]
            )
            assert np.flatnonzero(matrix[i]).tolist() == split.label_ids(i).tolist()
        seen += split.doc_ids()
    assert sorted(seen) == sorted(by_id)
    assert corpus.splits == ["train", "dev", "test"]
    train = corpus.split("train")
    np.testing.assert_array_equal(
        corpus.labels.train_counts, train.label_matrix().toarray().sum(0)
    )
    blocks = [
        values[a:b].tolist()
        for values, at in train.token_blocks()
        for a, b in itertools.pairwise(at)
    ]
    assert blocks == [train.tokens(i).tolist() for i in range(len(train))]
    assert not train.tokens(0).flags.owndata
    corpus.verify()
    assert left_over(tmp_path) == ["corpus"]


def test_reused_only_when_nothing_changed(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    first = small_corpus(tmp_path)
    before = (first.path / "manifest.json").stat().st_mtime_ns
    assert (small_corpus(tmp_path).path / "manifest.json").stat().st_mtime_ns == before
    assert "is up to date: reused" in caplog.text
    shorter = small_corpus(tmp_path, max_length=20)
    assert shorter.fingerprint != first.fingerprint
    assert shorter.split("train").lengths.max() == 20
    assert (
        "making it again and deleting its cached hidden states, if any; to keep the old corpus"
        in caplog.text
    )
    other_words = small_corpus(
        tmp_path, max_length=20, tokenizer={"kind": "trained", "model": "word"}
    )
    assert other_words.fingerprint != shorter.fingerprint


def test_same_corpus_from_processes_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr("xmtc.data.parallel.Parallel", joblib.Parallel)
    serially = small_corpus(tmp_path, n=1200)
    config = data_config(tmp_path / "again", jsonl_source(tmp_path, documents(1200)))
    in_processes = prepare(config, None)
    assert in_processes.manifest == serially.manifest


def test_something_else_is_never_overwritten(tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="exists and is not a corpus"):
        small_corpus(tmp_path)
    (tmp_path / "corpus" / "manifest.json").write_text('{"kind": "web app"}')
    with pytest.raises(DataError, match="not the manifest of an xmtc corpus"):
        small_corpus(tmp_path)
    assert (tmp_path / "corpus" / "thesis.txt").read_text() == "years of work"


def test_a_place_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="file/corpus: "):
        build(
            data_config(
                tmp_path / "file" / "corpus", jsonl_source(tmp_path, documents(9))
            )
        )


def test_a_link_to_another_disk_stays_a_link(tmp_path):
    (tmp_path / "large").mkdir()
    (tmp_path / "corpus").symlink_to(tmp_path / "large")
    for rows in (20, 30):
        corpus = build(
            data_config(tmp_path / "corpus", jsonl_source(tmp_path, documents(rows)))
        )
        assert (tmp_path / "corpus").is_symlink()
        assert Corpus.open(tmp_path / "large").fingerprint == corpus.fingerprint
        assert not [*tmp_path.glob(".*tmp")]


def test_repeats_of_training_texts_are_dropped(tmp_path):
    rows = documents(60)
    source = jsonl_source(tmp_path, rows)
    source["files"]["dev"] = str(
        write_jsonl(tmp_path / "dev.jsonl", rows[:5] + documents(70)[60:])
    )
    corpus = build(data_config(tmp_path / "corpus", source))
    assert corpus.manifest.counts.duplicates == 5
    assert corpus.split("dev").doc_ids() == [f"d{i}" for i in range(60, 70)]
    kept = build(data_config(tmp_path / "kept", source, duplicates="keep"))
    assert kept.manifest.counts.duplicates == 5
    assert len(kept.split("dev")) == 15


def test_splits_are_of_the_text_not_of_the_order(tmp_path):
    def parts(rows, **settings):
        corpus = build(
            data_config(tmp_path / "corpus", jsonl_source(tmp_path, rows), **settings)
        )
        return {name: set(corpus.split(name).doc_ids()) for name in corpus.splits}

    rows = documents(400)
    first = parts(rows)
    assert parts(rows[::-1]) == first
    assert 20 < len(first["dev"]) < 65
    assert parts(rows, split={"seed": 14}) != first
    assert set(parts(rows, split={"dev": 0, "test": 0})) == {"train"}
    limited = parts(rows, limit={"train": 50, "dev": 7})
    assert len(limited["train"]) == 50
    assert limited["train"] < first["train"]
    assert limited["dev"] < first["dev"]
    assert limited["test"] == first["test"]
    assert limited["train"] < parts(rows, limit={"train": 80})["train"]
    assert limited["train"] != set(
        sorted(first["train"], key=lambda d: int(d[1:]))[:50]
    )


@pytest.mark.parametrize("seed", range(40))
def test_few_documents_have_a_dev_split(seed):
    hashes = np.random.default_rng(seed).integers(0, 2**63, 20).astype(np.uint64)
    of_row = divide_documents(
        np.full(20, -1, np.int8),
        hashes,
        frozenset(),
        SplitConfig(),
        np.zeros(20, np.bool_),
    )
    assert {0, 1} <= set(of_row.tolist())


def test_a_text_of_test_that_is_in_a_dev_taken_from_train_is_left_out(tmp_path):
    source = jsonl_source(tmp_path, documents(300))
    source["files"]["test"] = str(write_jsonl(tmp_path / "test.jsonl", documents(310)))
    corpus = build(data_config(tmp_path / "corpus", source))
    assert corpus.split("test").doc_ids() == [f"d{i}" for i in range(300, 310)]
    assert corpus.manifest.counts.duplicates == 300


def test_a_source_with_test_gets_its_dev_from_train(tmp_path):
    source = jsonl_source(tmp_path, documents(300))
    source["files"]["test"] = str(
        write_jsonl(tmp_path / "test.jsonl", documents(340)[300:])
    )
    corpus = build(data_config(tmp_path / "corpus", source))
    assert len(corpus.split("test")) == 40
    assert 10 < len(corpus.split("dev")) < 60


def test_a_split_column_without_dev_gets_it_from_train(tmp_path):
    rows = [
        row | {"part": "test" if i % 5 == 0 else "train"}
        for i, row in enumerate(documents(300))
    ]
    source = jsonl_source(tmp_path, rows, columns={"id": "id", "split": "part"})
    corpus = build(data_config(tmp_path / "corpus", source))
    assert corpus.splits == ["train", "dev", "test"]
    assert len(corpus.split("test")) == 60
    assert 10 < len(corpus.split("dev")) < 50
    assert build(data_config(tmp_path / "corpus", source, split={"dev": 0})).splits == [
        "train",
        "test",
    ]


def test_added_documents_are_for_training_and_go_before_others_of_their_text(tmp_path):
    rows = documents(300)
    source = jsonl_source(tmp_path, rows)
    plain = build(data_config(tmp_path / "plain", source))
    in_test, in_train = (plain.split(name).doc_ids()[0] for name in ("test", "train"))
    texts = {row["id"]: row["text"] for row in rows}
    labels = {row["id"]: row["labels"] for row in rows}
    added = [
        {"id": "whole", "text": texts[in_test], "labels": ["new"]},
        {
            "id": "partly",
            "text": texts[in_train],
            "labels": ["new"],
            "rejected": labels[in_train][:1],
        },
        *({"id": f"more{i}", "text": f"more {i}", "labels": ["l0"]} for i in range(40)),
    ]
    path = write_jsonl(tmp_path / "more.jsonl", added)
    source["files"]["added"] = str(path)
    source["columns"]["rejected"] = "rejected"
    corpus = build(data_config(tmp_path / "corpus", source))
    counts = corpus.manifest.counts
    assert (counts.added, counts.replaced) == (42, 2)
    train = corpus.split("train")
    ids = train.doc_ids()
    assert {row["id"] for row in added} <= set(ids)
    assert in_train not in ids
    assert corpus.split("test").doc_ids() == plain.split("test").doc_ids()[1:]
    assert corpus.split("dev").doc_ids() == plain.split("dev").doc_ids()
    names = np.array(corpus.labels.labels)
    of_added = {
        name: names[train.label_ids(ids.index(name))].tolist()
        for name in ("whole", "partly")
    }
    assert of_added == {
        "whole": ["new"],
        "partly": sorted([*labels[in_train][1:], "new"]),
    }
    assert train.unjudged_matrix() is None  # what nobody judged is as the table has it


def test_rare_and_unseen_labels(tmp_path):
    rows = [{"id": str(i), "text": f"text {i}", "labels": ["often"]} for i in range(10)]
    rows[0]["labels"] = ["often", "once"]
    rows[1]["labels"] = ["once"]
    rows[2]["labels"] = ["rare"]
    source = jsonl_source(tmp_path, rows)
    dev = [{"id": "x", "text": "new", "labels": ["rare", "unseen"]}]
    source["files"]["dev"] = str(write_jsonl(tmp_path / "dev.jsonl", dev))
    source["labels"] = {"path": str(tmp_path / "labels.jsonl")}
    write_jsonl(
        tmp_path / "labels.jsonl",
        [{"label": n, "name": n.upper()} for n in ("often", "once", "rare", "unseen")],
    )
    corpus = build(data_config(tmp_path / "corpus", source, min_label_documents=2))
    table = dict(
        zip(corpus.labels.labels, corpus.labels.train_counts.tolist(), strict=True)
    )
    assert table == {"often": 8, "once": 2, "unseen": 0}
    assert corpus.labels.labels == sorted(table)
    assert corpus.labels.names[corpus.labels.index("unseen")] == "UNSEEN"
    assert corpus.manifest.counts.dropped_labels == 1
    assert corpus.manifest.counts.without_labels == 1
    assert corpus.split("dev").label_ids(0).tolist() == [corpus.labels.index("unseen")]
    with pytest.raises(DataError, match="99 training documents"):
        build(data_config(tmp_path / "other", source, min_label_documents=99))
    assert not (tmp_path / "other").exists()


def test_bad_rows_are_errors_or_are_counted(tmp_path):
    rows = [
        *documents(30),
        {"id": "empty", "text": "", "labels": ["l0"]},
        {"id": "bare", "text": "a", "labels": []},
    ]
    source = jsonl_source(tmp_path, rows)
    with pytest.raises(DataError, match=r"train\.jsonl:31: .*'text'"):
        build(data_config(tmp_path / "corpus", source))
    assert left_over(tmp_path) == []
    corpus = build(data_config(tmp_path / "corpus", source, on_bad_row="skip"))
    assert corpus.manifest.counts.rejected == 1
    assert corpus.manifest.counts.without_labels == 1
    assert corpus.manifest.counts.read == 32
    named = jsonl_source(tmp_path, rows, columns={"text": "body"})
    with pytest.raises(DataError, match=r"32 rows .*:1: .*'body'"):
        build(data_config(tmp_path / "other", named, on_bad_row="skip"))


@pytest.mark.parametrize(("choice", "kept"), [("keep", 33), ("drop", 30)])
def test_documents_without_labels_are_kept_or_dropped_and_counted(
    tmp_path, choice, kept
):
    bare = [
        {"id": f"bare{i}", "text": f"nothing fits {i}", "labels": empty}
        for i, empty in enumerate(([], "", None))
    ]
    corpus = build(
        data_config(
            tmp_path / "corpus",
            jsonl_source(tmp_path, bare + documents(30)),
            without_labels=choice,
        )
    )
    assert sum(len(corpus.split(name)) for name in corpus.splits) == kept
    sizes = [
        len(corpus.split(name).label_ids(i))
        for name in corpus.splits
        for i in range(len(corpus.split(name)))
    ]
    assert sizes.count(0) == kept - 30
    assert corpus.manifest.counts.without_labels == 3
    assert corpus.manifest.counts.rejected == 0


def test_documents_without_labels_are_errors_where_they_must_not_be(tmp_path):
    source = jsonl_source(
        tmp_path, [*documents(30), {"id": "bare", "text": "a", "labels": []}]
    )
    with pytest.raises(DataError, match=r"document 'bare': .*data\.without_labels"):
        build(data_config(tmp_path / "corpus", source, without_labels="error"))
    one = [{**row, "labels": row["labels"][:1]} for row in documents(30)]
    source = jsonl_source(tmp_path, [*one, {"id": "bare", "text": "a", "labels": []}])
    with pytest.raises(DataError, match=r"document 'bare': .*data\.task"):
        build(data_config(tmp_path / "corpus", source, task="single_label"))
    corpus = build(
        data_config(
            tmp_path / "corpus", source, task="single_label", without_labels="drop"
        )
    )
    assert corpus.manifest.counts.without_labels == 1


def test_repeated_doc_ids_are_counted(tmp_path):
    rows = documents(30)
    source = jsonl_source(tmp_path, [*rows, {**rows[3], "text": "another text"}])
    corpus = build(data_config(tmp_path / "corpus", source))
    assert corpus.manifest.counts.repeated_ids == 1
    assert sum(len(corpus.split(name)) for name in corpus.splits) == 31


def test_label_that_is_not_in_the_label_file(tmp_path):
    source = jsonl_source(tmp_path, documents(30))
    source["labels"] = {
        "path": str(
            write_jsonl(tmp_path / "labels.jsonl", [{"label": "l0", "name": "zero"}])
        )
    }
    with pytest.raises(DataError, match="label 'l1'"):
        build(data_config(tmp_path / "corpus", source))
    source["labels"]["closed"] = False
    corpus = build(data_config(tmp_path / "corpus", source))
    assert corpus.labels.names[:2] == ["zero", "l1"]


def test_document_without_tokens(tmp_path):
    rows = [*documents(30), {"id": "blank", "text": "\u200b\u0007", "labels": ["l0"]}]
    source = jsonl_source(tmp_path, rows)
    with pytest.raises(DataError, match="document 'blank' "):
        build(data_config(tmp_path / "corpus", source))
    corpus = build(
        data_config(
            tmp_path / "corpus", source, on_bad_row="skip", split={"dev": 0, "test": 0}
        )
    )
    assert corpus.manifest.counts.rejected == 1
    found = corpus.split("train").label_matrix().toarray().sum(0)
    np.testing.assert_array_equal(corpus.labels.train_counts, found)
    padding = jsonl_source(
        tmp_path,
        [*documents(30), {"id": "pad", "text": "[PAD] [PAD]", "labels": ["l0"]}],
    )
    with pytest.raises(DataError, match="document 'pad' "):
        build(data_config(tmp_path / "corpus", padding))


def test_single_label(tmp_path):
    with pytest.raises(DataError, match=r"2 labels, .*data\.task"):
        small_corpus(tmp_path, task="single_label")
    corpus = small_corpus(tmp_path, task="single_label", on_bad_row="skip")
    assert corpus.manifest.task == "single_label"
    assert all(
        len(corpus.split("train").label_ids(i)) == 1
        for i in range(len(corpus.split("train")))
    )


def test_single_label_documents_of_rare_labels_are_dropped_with_them(tmp_path):
    labels = {"train": ["a", "b"] * 3 + ["rare"], "dev": ["rare", "a", "unseen"]}
    source = {"kind": "jsonl", "files": {}}
    for split, given in labels.items():
        rows = [
            {"text": f"{split} text {i}", "labels": [label]}
            for i, label in enumerate(given)
        ]
        source["files"][split] = str(write_jsonl(tmp_path / f"{split}.jsonl", rows))
    settings = {"task": "single_label", "split": {"test": 0}}
    corpus = build(
        data_config(tmp_path / "corpus", source, **settings, min_label_documents=2)
    )
    found = {
        name: [
            corpus.labels.labels[j]
            for i in range(len(split))
            for j in split.label_ids(i)
        ]
        for name, split in ((name, corpus.split(name)) for name in corpus.splits)
    }
    assert found == {"train": ["a", "b"] * 3, "dev": ["a", "unseen"]}
    assert corpus.manifest.counts.without_labels == 2
    assert corpus.labels.train_counts.sum() == len(corpus.split("train"))
    write_jsonl(
        tmp_path / "train.jsonl",
        [{"text": f"text {i}", "labels": ["a"]} for i in range(3)],
    )
    with pytest.raises(DataError, match=r"single_label, .*'a'"):
        build(data_config(tmp_path / "other", source, **settings))


def test_needs_a_tokenizer(tmp_path):
    with pytest.raises(ConfigError, match="has no tokenizer; set"):
        build(
            data_config(
                tmp_path / "corpus",
                jsonl_source(tmp_path, documents(9)),
                tokenizer=None,
            )
        )


def test_no_training_documents(tmp_path):
    rows = [row | {"part": "dev"} for row in documents(9)]
    source = jsonl_source(tmp_path, rows, columns={"split": "part"})
    with pytest.raises(DataError, match="no training documents among the 9 documents"):
        build(data_config(tmp_path / "corpus", source))


def test_errors_never_show_the_text(tmp_path):
    secret = "patient Jane Doe"
    for row in (
        {"id": "1", "text": secret},
        {"id": "1", "text": [secret], "labels": ["x"]},
    ):
        with pytest.raises(DataError) as caught:
            build(data_config(tmp_path / "corpus", jsonl_source(tmp_path, [row])))
        assert "Jane" not in str(caught.value)
    write_jsonl(tmp_path / "labels.jsonl", [{"label": "x", "name": "X"}])
    known = {"path": str(tmp_path / "labels.jsonl")}
    row = {"id": "1", "text": "a text", "labels": ["x"], "note": secret * 10}
    for columns in (
        {"split": "note"},
        {"labels": "note"},
        {"id": "note", "labels": "id"},
    ):
        with pytest.raises(DataError, match="a text of 160 characters") as caught:
            build(
                data_config(
                    tmp_path / "corpus",
                    jsonl_source(tmp_path, [row], columns=columns, labels=known),
                )
            )
        assert "Jane" not in str(caught.value)


@pytest.mark.parametrize(
    "stop", [KeyboardInterrupt, OSError(28, "No space left on device")]
)
def test_interrupted_leaves_nothing_half_written(tmp_path, stop):
    def stops(function, items):
        yield function(next(iter(items)))
        raise stop

    config = data_config(tmp_path / "corpus", jsonl_source(tmp_path, documents(900)))
    with pytest.raises(
        (KeyboardInterrupt, StorageError), match=r"^$|No space left on device"
    ):
        prepare(config, None, map_unordered=stops)
    assert left_over(tmp_path) == []
    assert len(build(config).split("train")) > 600


def _prepare_and_die(config):
    def dies(function, items):
        yield function(next(iter(items)))
        os.kill(os.getpid(), signal.SIGKILL)

    prepare(config, None, map_unordered=dies)


def test_killed_half_way_starts_again(tmp_path):
    old = small_corpus(tmp_path)
    config = data_config(tmp_path / "corpus", jsonl_source(tmp_path, documents(900)))
    process = multiprocessing.get_context("spawn").Process(
        target=_prepare_and_die, args=(config,)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert left_over(tmp_path) == [".corpus.unfinished", "corpus"]
    assert Corpus.open(tmp_path / "corpus").fingerprint == old.fingerprint
    assert build(config).fingerprint != old.fingerprint
    assert left_over(tmp_path) == ["corpus"]


def test_damaged_corpora_say_so(tmp_path):
    path = small_corpus(tmp_path).path
    shard = path / "train" / "00000.arrow"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-100])
    with pytest.raises(DataError, match=r"00000\.arrow: [\d,]+ bytes instead of"):
        Corpus.open(path).split("train")
    shard.write_bytes(whole[:-100] + bytes(100))
    with pytest.raises(DataError, match="damaged"):
        Corpus.open(path).split("train")
    middle = len(whole) // 2
    shard.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    with pytest.raises(DataError, match="changed since it was written"):
        Corpus.open(path).verify()
    shard.unlink()
    with pytest.raises(DataError, match="missing from the corpus"):
        Corpus.open(path).split("train")
    (path / "tokenizer" / "tokenizer.json").write_text('{"half":')
    for _ in range(2):  # damaged, then missing
        with pytest.raises(DataError, match="tokenizer: "):
            Corpus.open(path).tokenizer()
        shutil.rmtree(path / "tokenizer", ignore_errors=True)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(DataError, match=r"format 99, .*8"):
        Corpus.open(path)
    (path / "manifest.json").write_text(json.dumps(manifest | {"format": 1}))
    with pytest.raises(DataError, match=r"format 1, .*8"):
        small_corpus(tmp_path)
    with pytest.raises(
        DataError, match=r"no corpus here .*; start where the run did, or"
    ):
        Corpus.open(tmp_path / "none")
    with pytest.raises(DataError, match=r"'moon'.*train, dev, test"):
        build(
            data_config(tmp_path / "new", jsonl_source(tmp_path, documents(99)))
        ).split("moon")


def test_propensities_follow_the_formula(tmp_path):
    table = small_corpus(tmp_path).labels
    n, (a, b) = 160, (0.55, 1.5)
    for count, found in zip(table.train_counts, table.propensities(n), strict=True):
        c = (np.log(n) - 1) * (b + 1) ** a
        assert found == pytest.approx(1 / (1 + c * np.exp(-a * np.log(count + b))))
    assert table.index(table.labels[3]) == 3
    assert table.indices(table.labels).tolist() == list(range(len(table)))
    with pytest.raises(DataError, match="'moon'"):
        table.index("moon")


@pytest.mark.data
def test_eurlex(tmp_path):
    folder = real_data("eurlex57k")
    source = {
        "kind": "parquet",
        "files": {name: str(folder / f"{name}.parquet") for name in ("train", "dev")},
        "columns": {"id": "doc_id"},
        "labels": {"path": str(folder / "labels.parquet"), "parents": "parents"},
    }
    config = data_config(
        tmp_path / "corpus",
        source,
        limit={"train": 300, "dev": 100},
        max_length=64,
        tokenizer=None,
    )
    corpus = prepare(config, MINILM)
    assert len(corpus.split("train")) == 300
    assert len(corpus.split("dev")) == 100
    assert corpus.labels.parents is not None
    assert any(corpus.labels.parents)


def test_any_later_start_removes_what_a_killed_one_left(tmp_path):
    config = data_config(tmp_path / "other", jsonl_source(tmp_path, documents(50)))
    process = multiprocessing.get_context("spawn").Process(
        target=_prepare_and_die, args=(config,)
    )
    process.start()
    process.join()
    spool = tmp_path / ".other.unfinished" / "spool"
    assert spool.stat().st_mode & 0o777 == 0o700
    with locked(tmp_path / "other"):  # as if it were still at work
        small_corpus(tmp_path)
        assert spool.exists()
    small_corpus(tmp_path)
    assert left_over(tmp_path) == ["corpus"]


def test_a_corpus_is_not_replaced_while_it_is_used(tmp_path):
    old = small_corpus(tmp_path)
    with in_use(old.path, old.fingerprint), in_use(old.path, old.fingerprint):
        assert small_corpus(tmp_path).fingerprint == old.fingerprint
        with pytest.raises(DataError, match="a run is using this corpus"):
            small_corpus(tmp_path, max_length=20)
        assert Corpus.open(old.path).fingerprint == old.fingerprint
    new = small_corpus(tmp_path, max_length=20)
    with (
        pytest.raises(DataError, match="another command is making"),
        in_use(old.path, old.fingerprint),
    ):
        pass
    refused = pytest.raises(DataError, match="another command is making")
    with replaceable(new.path), refused, in_use(new.path, new.fingerprint):
        pass
    assert left_over(tmp_path) == ["corpus"]


@pytest.mark.parametrize("changed", ["train.jsonl", "labels.csv"])
def test_a_source_that_changes_while_it_is_read_makes_no_corpus(tmp_path, changed):
    (tmp_path / "labels.csv").write_text(
        "label,name\n" + "".join(f"l{i},label {i}\n" for i in range(7))
    )
    source = jsonl_source(
        tmp_path, documents(200), labels={"path": str(tmp_path / "labels.csv")}
    )
    config = data_config(tmp_path / "corpus", source)

    def changes(function, items):
        with (tmp_path / changed).open("a") as file:
            file.write(
                f"x{file.tell()},another\n"
                if changed == "labels.csv"
                else json.dumps(documents(201)[-1]) + "\n"
            )
        return map(function, list(items))

    with pytest.raises(DataError, match="changed while it was read"):
        prepare(config, None, map_unordered=changes)
    assert left_over(tmp_path) == ["labels.csv"]
    assert "train" in build(config).splits
