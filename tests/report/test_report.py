"""The report's files, without a browser."""

import json
import math
import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from markupsafe import Markup
from scipy import sparse

from evaluation_cases import label_table, whole
from synthetic_runs import make_run
from xmtc.errors import DataError, StorageError
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.evaluation import EvaluatedDocuments, evaluate
from xmtc.evaluate.scorer_groups import groups_lost_by_fusion
from xmtc.evaluate.store import write_evaluation
from xmtc.report import compare
from xmtc.report.charts import Axis, Bars, Series, bar_chart, line_chart, number
from xmtc.report.run_results import RunResults
from xmtc.report.section import Table
from xmtc.report.sections.labels import embed, label_columns
from xmtc.report.write import write_page, write_report


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [
        make_run(folder, "planted", documents=200, skill=2.7),
        make_run(folder, "random", documents=200, skill=2.2),
    ]


def test_one_page_with_summary_and_tables(runs, tmp_path):
    write_report([RunResults.load(runs[0])], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    for heading in (
        "At a glance",
        "All metrics",
        "By label frequency",
        "Curves",
        "Training",
        "Labels",
        "Setup",
    ):
        assert f"<h2>{heading}" in page
    assert "src=" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "Comparison" not in page
    assert "| P@1 |" in (tmp_path / "report_tables" / "summary.md").read_text()
    table = pd.read_csv(tmp_path / "report_tables" / "frequency.csv")
    assert table.equals(
        pd.read_parquet(tmp_path / "report_tables" / "frequency.parquet").astype(
            table.dtypes
        )
    )
    assert not list(tmp_path.rglob("*.tmp"))


def test_the_stage_that_writes_the_page_has_no_state_in_it(runs, tmp_path):
    stages = {"finetune": {"state": "done"}, "report": {"state": "running"}}
    run = RunResults.load(runs[0])
    write_report(
        [replace(run, record={**run.record, "stages": stages})],
        tmp_path / "report.html",
    )
    setup = pd.read_csv(tmp_path / "report_tables" / "provenance.csv", index_col=0)[
        "planted"
    ]
    assert setup.filter(like="stage ").to_dict() == {"stage finetune": "done"}


@pytest.mark.parametrize(
    ("state", "warned"), [("pending", True), ("failed", True), ("done", False)]
)
def test_figures_from_before_the_end_of_training_are_called_so(
    runs, tmp_path, state, warned
):
    run = RunResults.load(runs[0])
    record = {
        **run.record,
        "stages": {"finetune": {"state": "running"}, "evaluate": {"state": state}},
    }
    write_report(
        [run, replace(run, name="cut", record=record)], tmp_path / "report.html"
    )
    assert (
        "Training of cut has not ended" in (tmp_path / "report.html").read_text()
    ) == warned


def test_a_label_with_a_bar_stays_in_its_cell_of_the_summary(tmp_path):
    table = Table("t", ["label", "share"], [["fish|cod", "1.0"]], in_summary=True)
    write_page(tmp_path / "page.html", "Drift", "2 documents.", [table])
    assert (
        r"| fish\|cod | 1.0 |" in (tmp_path / "page_tables" / "summary.md").read_text()
    )


def test_a_bar_of_the_report_releases_the_documents_that_it_says(runs, tmp_path):
    write_report([RunResults.load(runs[0])], tmp_path / "report.html")
    table = pd.read_csv(tmp_path / "report_tables" / "bars.csv")
    bars = json.loads((runs[0] / "eval" / "test" / "details.json").read_text())[
        "release"
    ]["bars"]
    for name, known in bars.items():
        assert (table[f"expected_{name}>="] <= known[3::4]).all()
        assert table[f"expected_{name}>="].to_numpy() == pytest.approx(
            np.array(known[3::4]), abs=1e-4
        )


def test_two_runs_are_compared_in_pairs(runs, tmp_path):
    write_report([RunResults.load(run) for run in runs], tmp_path / "report.html")
    table = pd.read_csv(tmp_path / "report_tables" / "differences.csv").set_index(
        "metric"
    )
    values = [
        json.loads((run / "eval" / "test" / "metrics.json").read_text())["ndcg@5"]
        for run in runs
    ]
    assert float(table.loc["nDCG@5", "difference, points"].split()[0]) == pytest.approx(
        100 * (values[1] - values[0]), abs=0.006
    )
    changes = pd.read_csv(tmp_path / "report_tables" / "changes.csv")
    points = changes["change, points"]
    assert points.is_monotonic_decreasing
    assert points.tolist() == pytest.approx(
        (changes["F1 of the run"] - changes["F1 of planted"]).tolist(), abs=0.11
    )
    assert (changes["documents"] >= 5).all()
    settings = pd.read_csv(tmp_path / "report_tables" / "settings.csv")
    assert settings["setting"].tolist() == ["name", "plant.epochs"]


def test_runs_of_other_documents_are_shown_but_not_paired(runs, tmp_path):
    other = make_run(tmp_path, "other", documents=100)
    write_report(
        [RunResults.load(runs[0]), RunResults.load(other)], tmp_path / "report.html"
    )
    page = (tmp_path / "report.html").read_text()
    assert "Not compared in pairs: other: its documents" in page
    words = "nothing shows that other was evaluated on the documents of planted"
    assert words in page[: page.index("<main")]
    assert "<p>planted: 200 documents" in page  # and not those of all
    write_report([RunResults.load(run) for run in runs], tmp_path / "report.html")
    assert "nothing shows" not in (tmp_path / "report.html").read_text()


def ranked_labels(folder):
    """The labels of the tables of best and of worst labels."""
    return [
        pd.read_csv(folder / "report_tables" / f"{which}_labels.csv")
        for which in ("best", "worst")
    ]


def with_support(run, support_L):
    """The run with other numbers of documents of its labels."""
    column = run.per_label.column_names.index("support")
    return replace(
        run, per_label=run.per_label.set_column(column, "support", pa.array(support_L))
    )


@pytest.mark.parametrize("documents", [149, 2000])
def test_no_label_is_among_the_best_and_the_worst_and_all_have_enough_documents(
    tmp_path, documents
):
    write_report(
        [RunResults.load(make_run(tmp_path, "run", documents=documents))],
        tmp_path / "report.html",
    )
    best, worst = ranked_labels(tmp_path)
    assert len(best) == len(worst) == 10
    assert not set(best["label"]) & set(worst["label"])
    assert best["F1"].min() >= worst["F1"].max()
    assert min(best["documents"].min(), worst["documents"].min()) >= 5


@pytest.mark.parametrize(("ranked", "in_each"), [(7, 3), (2, 1), (1, 0), (0, 0)])
def test_few_labels_are_shared_between_the_best_and_the_worst(
    runs, tmp_path, ranked, in_each
):
    run = RunResults.load(runs[0])
    support_L = np.where(np.arange(len(run.per_label)) < ranked, 9, 4)
    write_report([with_support(run, support_L)], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert ("Fewer than two labels of training have 5" in page) == (in_each == 0)
    if in_each:
        assert [len(labels) for labels in ranked_labels(tmp_path)] == [in_each, in_each]


def test_labels_that_training_did_not_have_are_not_ranked(runs, tmp_path):
    run = RunResults.load(runs[0])
    column = run.per_label.column_names.index("train_count")
    train_L = np.where(np.arange(len(run.per_label)) < 6, 3, 0)
    counts = run.per_label.set_column(column, "train_count", pa.array(train_L))
    run = with_support(replace(run, per_label=counts), np.full(len(train_L), 9))
    write_report([run], tmp_path / "report.html")
    best, worst = ranked_labels(tmp_path)
    assert set(best["train"]) == set(worst["train"]) == {3}
    page = (tmp_path / "report.html").read_text()
    assert "The 3 labels of lowest F1, of the 6 labels of training with 5" in page


def test_the_page_opens_with_three_numbers_in_words_and_a_picture_and_folds_its_tables(
    runs, tmp_path
):
    run = RunResults.load(runs[0])
    write_report([run], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    opening = page[
        page.index('<section id="overview">') : page.index('<section id="headline">')
    ]
    assert opening.count('<div class="figure">') == 3
    assert opening.count('<svg class="chart"') == 1
    assert "<table" not in opening
    assert (
        f"Of 100 documents, about {100 * run.metrics['p@1']:.0f} get a right label"
        in opening
    )
    assert (
        f"Of 100 labels that documents have, about {100 * run.metrics['micro_recall']:.0f} are predicted"
        in opening
    )
    groups = run.metrics["bins"]
    frequent = groups[">50"]
    assert (
        f"over the {frequent['labels']:,} labels with more than 50 training documents, it is "
        f"{100 * frequent['macro_f1']:.0f}. " in opening
    )
    assert page.count('<details class="folded">') == page.count('<div class="scroll"')


def test_rare_and_frequent_labels_are_compared_only_where_both_have_documents(
    runs, tmp_path
):
    run = RunResults.load(runs[0])
    bins = {
        name: {**row, "docs": row["docs"] if name == ">50" else 3}
        for name, row in run.metrics["bins"].items()
    }
    write_report(
        [replace(run, metrics={**run.metrics, "bins": bins})], tmp_path / "report.html"
    )
    assert (
        "Fewer than two groups of labels have 5 or more documents"
        in (tmp_path / "report.html").read_text()
    )


def opening_of(run, bins, folder):
    """Write the report of a run with other groups of labels, and return its first section."""
    write_report(
        [replace(run, metrics={**run.metrics, "bins": bins})], folder / "report.html"
    )
    page = (folder / "report.html").read_text()
    return page[
        page.index('<section id="overview">') : page.index('<section id="headline">')
    ]


def test_a_handful_of_labels_settles_nothing(runs, tmp_path):
    run = RunResults.load(runs[0])

    def group(labels, docs, f1):
        interval = {"macro_f1": [f1, f1]}
        one = run.metrics["bins"][">50"]
        return {**one, "labels": labels, "docs": docs, "macro_f1": f1, "ci95": interval}

    few = {"0": group(214, 109, 0.327), "1-5": group(147, 97, 0.217)}
    few[">50"] = group(3, 6, 0.0)
    opening = opening_of(run, few, tmp_path)
    assert "3 labels in 6 documents are too few to say which fare better" in opening
    assert "<b>21.7</b> % <span>[21.7, 21.7] against 0.0</span>" in opening
    assert "Over the 214 labels without training documents, it is 33." in opening
    enough = {"1-5": few["1-5"], "6-10": group(12, 40, 0.5)}
    assert "Left out" not in opening_of(run, enough, tmp_path)
    opening = opening_of(run, {**enough, ">50": few[">50"]}, tmp_path)
    assert "over the 12 labels with 6 to 10 training documents, it is 50." in opening
    assert "Rare labels fare worse, by more than chance explains." in opening
    assert (
        "Labels with 1 to 5 training documents against labels with 6 to 10" in opening
    )
    assert (
        "too few documents: the 3 labels with more than 50 training documents (0)."
        in opening
    )


def test_several_runs_have_a_sentence_each(runs, tmp_path):
    some = [RunResults.load(run) for run in runs[:2]]
    write_report(some, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    for index, run in enumerate(some):
        said = f"{100 * run.metrics['p@1']:.0f} get a right label"
        start = f'<p class="of-run-{index}">{run.name}: Of 100 documents, about '
        assert start + said in page


def test_groups_that_the_fusion_loses_are_named_at_the_top(runs, tmp_path):
    def of(value):
        return {"bins": {"1-5": 0.3, "11-50": value, ">50": None}}

    scorers = {
        "fused": of(0.0),
        "alone": {"linear": of(0.246), "words": of(0.293)},
        "groups": {"11-50": {"labels": 12, "docs": 60}},
    }
    assert groups_lost_by_fusion(scorers) == [
        "labels with 11-50 training documents: macro-F1 0.0 of all scorers fused, 29.3 of words alone"
    ]
    assert not groups_lost_by_fusion({**scorers, "fused": of(0.25)})
    few = {"11-50": {"labels": 3, "docs": 60}}  # chance explains differences
    assert not groups_lost_by_fusion({**scorers, "groups": few})
    run = replace(RunResults.load(runs[0]), scorers=scorers)
    opening = opening_of(run, run.metrics["bins"], tmp_path)
    assert "labels with 11-50 training documents: macro-F1 0.0" in opening
    page = (tmp_path / "report.html").read_text()
    assert "when one is left out" not in page
    assert "<code>xmtc ablate RUN</code>" in page
    assert "`" not in page[: page.index("<script")]


def test_the_command_is_the_one_that_trained(runs, tmp_path):
    run = RunResults.load(runs[0])

    def session(minute, *command):
        started = f"2026-01-01T00:0{minute}:00.000+00:00"
        return {"started_at": started, "command": command, "world_size": 1}

    sessions = [session(1, "xmtc", "train", "a.yaml"), session(5, "xmtc", "again")]
    finetune = {"state": "done", "started_at": "2026-01-01T00:02:00.000+00:00"}
    record = {**run.record, "sessions": sessions, "stages": {"finetune": finetune}}
    write_report([replace(run, record=record)], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "xmtc train a.yaml" in page
    assert "xmtc again" not in page


def test_only_the_evaluation_is_needed(runs, tmp_path):
    folder = tmp_path / "bare"
    folder.mkdir()
    for name in ("metrics.json", "per_label.parquet"):
        shutil.copy(runs[0] / "eval" / "test" / name, folder)
    write_report([RunResults.load(folder)], tmp_path / "report.html")
    assert "<h2>At a glance" in (tmp_path / "report.html").read_text()


def test_label_names_cannot_break_out_of_the_page():
    assert "</script>" not in embed({"a": "</script><script>alert(1)</script>"})
    assert json.loads(embed({"a": "</script>"})) == {"a": "</script>"}


def test_labels_of_runs_join_by_name(runs):
    columns = label_columns([RunResults.load(run) for run in runs])
    frame = pd.read_parquet(runs[1] / "eval" / "test" / "per_label.parquet").set_index(
        "label"
    )
    assert columns["runs"][1]["tp"] == frame.loc[columns["labels"], "tp"].tolist()
    assert columns["total"] == len(frame)


def single_label_run(folder, name, classes, documents=60, seed=0):
    rng = np.random.default_rng(seed)
    gold = sparse.csr_array(np.eye(classes, dtype=bool)[np.arange(documents) % classes])
    scores = rng.dirichlet(np.ones(classes), documents).astype(np.float32)
    lengths = np.arange(5, documents + 5, dtype=np.int32)
    found = evaluate(
        whole(scores),
        gold,
        label_table(classes),
        100,
        config=EvaluateConfig(resamples=20),
        decision=None,
        documents=EvaluatedDocuments(lengths=lengths),
    )
    write_evaluation(folder / name, found)
    return RunResults.load(folder / name)


def test_a_single_label_task_shows_what_has_a_meaning_there(tmp_path):
    runs = [
        single_label_run(tmp_path, "topics", 3),
        single_label_run(tmp_path, "others", 3, seed=1),
    ]
    write_report(runs, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    for words in (
        "Confusion matrix",
        "best label",
        "accuracy = micro-F1",
        "macro-recall",
        "Accuracy@k",
        "Reliability",
    ):
        assert words in page
    for words in ("P@", "R@", "nDCG", "F1 by threshold", "Precision and recall"):
        assert words not in page, "a constant, or another name of the accuracy"
    differences = pd.read_csv(tmp_path / "report_tables" / "differences.csv")
    assert differences["metric"][0] == "accuracy = micro-F1"


@pytest.mark.parametrize(
    ("groups", "there"), [((">50",), False), (("1-5", ">50"), True)]
)
def test_groups_of_classes_are_left_out_where_there_is_one(tmp_path, groups, there):
    run = single_label_run(tmp_path, "topics", 3)
    bins = {
        name: {**row, "labels": 3 if name in groups else 0}
        for name, row in run.metrics["bins"].items()
    }
    write_report(
        [replace(run, metrics={**run.metrics, "bins": bins})], tmp_path / "report.html"
    )
    assert ("By label frequency" in (tmp_path / "report.html").read_text()) is there


def test_a_run_counts_its_own_documents_of_a_label(runs, tmp_path):
    other = make_run(tmp_path, "other", documents=100)
    columns = label_columns([RunResults.load(run) for run in (*runs, other)])
    frames = [
        pd.read_parquet(run / "eval" / "test" / "per_label.parquet")
        .set_index("label")
        .loc[columns["labels"]]
        for run in (runs[0], other)
    ]
    assert columns["support"] == frames[0]["support"].tolist()
    assert [run["support"] for run in columns["runs"]] == [
        0,
        0,
        frames[1]["support"].tolist(),
    ]


def test_runs_with_other_labels_or_counts_say_so_and_their_groups_are_not_compared(
    runs, tmp_path
):
    base, same = (RunResults.load(run) for run in runs)
    assert compare.caveats([base, same]) == []
    table = base.per_label.to_pandas()
    rare = table["train_count"].between(21, 50) & (table["support"] > 0)
    assert rare.any()
    more = table.assign(train_count=table["train_count"].where(~rare, 8))
    other = replace(base, name="more", per_label=pa.Table.from_pandas(more))
    (sentence,) = compare.caveats([base, other])
    assert (
        "more: labels have other numbers of training documents than in planted"
        in sentence
    )
    metrics = {row[0] for row in compare.paired_differences([base, other])[0].rows}
    assert "macro-F1 of labels with >50 training documents" in metrics
    assert not metrics & {
        f"macro-F1 of labels with {name} training documents"
        for name in ("6-10", "11-50")
    }
    fewer = replace(base, name="fewer", per_label=pa.Table.from_pandas(table[~rare]))
    assert (
        f"{rare.sum()} are only in planted and 0 only in fewer"
        in compare.caveats([base, fewer])[0]
    )


@pytest.mark.parametrize(
    ("damaged", "content", "message"),
    [
        (
            "eval/test/per_label.parquet",
            b"PAR1cut",
            r"per_label\.parquet: cannot be read as Parquet",
        ),
        (
            "eval/test/per_label.parquet",
            None,
            r"per_label\.parquet: cannot be read as Parquet: no such file; evaluate",
        ),
        (
            "eval/test/replicates.parquet",
            b"PAR1cut",
            r"replicates\.parquet: cannot be read as Parquet",
        ),
        ("eval/test/metrics.json", b"{}", r"metrics\.json: no 'docs'"),
        ("config.yaml", b"a: [", r"config\.yaml: damaged"),
        ("config.yaml", b"words", r"config\.yaml: damaged"),
    ],
)
def test_damaged_files_of_a_run_are_named(runs, tmp_path, damaged, content, message):
    run = shutil.copytree(runs[0], tmp_path / "run")
    (run / damaged).unlink()
    if content is not None:
        (run / damaged).write_bytes(content)
    with pytest.raises(DataError, match=message):
        RunResults.load(run)


@pytest.mark.parametrize("output", ["", "report.md", "taken/report.html"])
def test_an_output_that_can_be_no_page_is_refused(runs, tmp_path, output):
    (tmp_path / "taken").write_text("mine")
    before = sorted(tmp_path.parent.iterdir())
    with pytest.raises(StorageError, match=r"is an HTML page|cannot be written"):
        write_report([RunResults.load(runs[0])], tmp_path / output)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    assert sorted(tmp_path.parent.iterdir()) == before


def test_what_cannot_be_reported_is_named(runs, tmp_path):
    with pytest.raises(DataError, match=r"no evaluation \(it has none"):
        RunResults.load(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        RunResults.load(tmp_path / "nothing")
    with pytest.raises(DataError, match=r"'dev' .*test"):
        RunResults.load(runs[0], "dev")
    result = RunResults.load(runs[0])
    with pytest.raises(DataError, match="'planted'"):
        write_report([result, result], tmp_path / "report.html")
    with pytest.raises(DataError, match="1 to 8 runs"):
        write_report([], tmp_path / "report.html")


@pytest.mark.parametrize("value", [0.0, 5.0, 1e-9, 1e12])
def test_charts_hold_constant_and_extreme_values(value):
    chart = line_chart(
        [Series("a", [1, 2], [value, math.nan])], Axis("x"), Axis("y"), "a chart"
    )
    assert isinstance(chart, Markup)
    assert "nan" not in chart
    bars = bar_chart(
        ["<g>"],
        [Bars("a", [None]), Bars("b", [value], 1, [[value, value]])],
        "x",
        Axis("y"),
        "b",
    )
    assert "&lt;g&gt;" in bars
    assert "<g>" not in bars


@pytest.mark.parametrize(("highest", "last"), [(0.687, 80), (0.8, 80), (0.012, 1.25)])
def test_bars_end_below_the_last_tick(highest, last):
    bars = Bars("a", [highest / 2], intervals=[[0.0, highest]])
    chart = bar_chart(["g"], [bars], "x", Axis("y", percent=True), "a chart")
    ticks = re.findall(r'<text class="tick y"[^>]*>([\d.]+)</text>', chart)
    assert float(ticks[-1]) == last


def test_numbers_are_short():
    assert [number(v) for v in (0, 0.25, 1200, 3.4e6)] == ["0", "0.25", "1.2k", "3.4M"]
