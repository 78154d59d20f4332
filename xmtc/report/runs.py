"""Evaluation and reports from files alone: runs, or any system's predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from xmtc.artefact.contract import OUTCOMES
from xmtc.artefact.export import THRESHOLDS, read_decision
from xmtc.config.load import load_config
from xmtc.data.corpus import Corpus
from xmtc.data.labels import LabelTable
from xmtc.errors import ConfigError, DataError
from xmtc.evaluate import layout
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.decisions import HalfOutcomes, compare_rules, outcomes_of
from xmtc.evaluate.evaluation import EvaluatedDocuments, Evaluation, evaluate
from xmtc.evaluate.store import read_predictions, write_evaluation
from xmtc.evaluate.summary import summary_table
from xmtc.files import TEMPORARY, resolve_links
from xmtc.fusion.decision import Decision, Outcomes
from xmtc.report import compare
from xmtc.report.run_results import RunResults
from xmtc.report.write import write_report
from xmtc.run.config import RunConfig
from xmtc.run.copies import open_corpus
from xmtc.run.directory import RunDirectory, Stage
from xmtc.run.state import check_unchanged, read_run
from xmtc.track.console import counted, print_line


def report_runs(runs: Sequence[Path], output: Path, split: str | None = None) -> None:
    """Write one self-contained page about runs (or folders that `xmtc evaluate` wrote); several are compared.

    Args:
        runs: run directories; one given twice counts once; those of equal names are distinguished by their
            folders' names.
        output: HTML file.
        split: dev or test; test where a run has it when absent.

    Raises:
        DataError: a run has no evaluation yet.
    """
    name_by_run = _short_names(runs)
    if len(name_by_run) < len(runs):
        print_line(
            f"warning: {counted(len(runs) - len(name_by_run), 'run')} given before; each is shown once"
        )
    results = [RunResults.load(run, split, name) for run, name in name_by_run.items()]
    write_report(results, output)


def warn_if_worse(run: Path, split: str) -> None:
    """Print what the model that a run continued from did better, by more than chance explains."""
    start = RunResults.load(run, split).start
    if start is None:
        return
    worse = compare.worse_metrics(*start)
    if worse:
        print_line(
            f"warning: {split}: worse than the model that training started from: {', '.join(worse)}"
        )


def _short_names(runs: Sequence[Path]) -> dict[Path, str]:
    """Name each directory by the shortest end of its path that no other one has."""
    paths = list(dict.fromkeys(resolve_links(run) for run in runs))
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            return dict(zip(paths, names, strict=True))
    raise AssertionError("different paths have different names")


def evaluate_predictions(
    predictions: Path,
    gold: Path,
    split: str,
    output: Path,
    threshold: float | None = None,
) -> None:
    """Measure any system's predictions file against a corpus; print the table, write metrics and report.

    Raises:
        DataError: the predictions do not fit, or `output` holds something else than an earlier evaluation.
    """
    if output.exists() and not (output.is_dir() and _may_be_replaced(output)):
        raise DataError(
            f"{output}: holds something else than an evaluation; give a new or an empty folder by --output"
        )
    decision = None if threshold is None else Decision(threshold)
    evaluation = evaluate_files(
        predictions, gold, split, output, EvaluateConfig(), decision
    )
    report_runs([output], output / layout.REPORT)
    Console().print(summary_table(evaluation.metrics, f"{predictions}: {split}"))
    print(f"report: {output / layout.REPORT}")


def _may_be_replaced(folder: Path) -> bool:
    """Whether a folder is empty or holds an evaluation, also one that was interrupted before it had metrics."""
    names = {
        path.name for path in folder.iterdir() if not path.name.endswith(TEMPORARY)
    }
    return layout.METRICS in names or names <= layout.BEFORE_METRICS


def evaluate_run(run: Path) -> None:
    """Measure a run's saved predictions again, as after a change of its `evaluate` section or of the model's decision.

    What needs more than the kept predictions (areas under the curve, the calibration error before calibration, what a
    shortlist holds) stays as training measured it.

    Raises:
        DataError: there are no predictions in the run, it is being trained again, or its corpus has been replaced.
    """
    files = RunDirectory(run)
    splits = [split for split in files.evaluated() if files.predictions(split).exists()]
    if not splits:
        raise DataError(
            f"{run}: no predictions there (eval/*/predictions.parquet); give a finished run"
        )
    config = load_config(RunConfig, files.config, [])
    _warn_of_incomplete(files, splits)
    record = read_run(run)
    if record is not None and record.stages[Stage.EVALUATE].state != "done":
        raise DataError(
            f"{run}: trained again, but not to the end; finish it ('xmtc train') and evaluate then"
        )
    corpus = open_corpus(config)
    check_unchanged(run, "corpus", corpus.path, corpus.fingerprint)
    for split in splits:
        evaluation = _evaluate_split_again(run, split, config, corpus)
        report_runs([run], files.report(split), split)
        Console().print(summary_table(evaluation.metrics, f"{run.name}: {split}"))


def _evaluate_split_again(
    run: Path, split: str, config: RunConfig, corpus: Corpus
) -> Evaluation:
    """Measure the saved predictions of one split by the model's decision."""
    files = RunDirectory(run)
    before = RunResults.load(run, split)
    kept = min(config.evaluate.top_k, before.metrics["top_k"])  # the file has no more
    decision = None
    outcomes = None
    if corpus.manifest.task != "single_label":
        decision = read_decision(files.model / THRESHOLDS, before.metrics["labels"])
        outcomes = Outcomes.load(files.model / OUTCOMES)
    return evaluate_files(
        files.predictions(split),
        corpus.path,
        split,
        files.evaluation(split),
        replace(config.evaluate, top_k=kept),
        decision,
        before.metrics,
        outcomes,
    )


def _warn_of_incomplete(files: RunDirectory, complete: Sequence[str]) -> None:
    """Name the splits whose evaluation lacks a file, so that they keep what they have."""
    for folder in sorted(files.root.glob("eval/*")):
        if folder.is_dir() and folder.name not in complete:
            missing = [
                name
                for name in (layout.METRICS, layout.PREDICTIONS)
                if not (folder / name).exists()
            ]
            print_line(
                f"warning: {folder.name}: not evaluated again: {folder} has no {' and no '.join(missing)}"
            )


def evaluate_files(
    predictions: Path,
    gold: Path,
    split: str,
    output: Path,
    config: EvaluateConfig,
    decision: Decision | None = None,
    measured_before: Mapping[str, Any] | None = None,
    outcomes: Outcomes | None = None,
) -> Evaluation:
    """Evaluate a predictions file of any system against a prepared corpus, and write the results.

    Args:
        predictions: Parquet, see `read_predictions`.
        gold: corpus directory.
        split: split of the corpus whose documents the file holds.
        output: folder to write, see `write_evaluation`.
        config: the `evaluate` section.
        decision: which labels are predicted. None takes the threshold of greatest micro-F1 on these documents, which
            flatters the system; metrics.json then says `"threshold_tuned_here": true`. In a single-label corpus it is
            the best label.
        measured_before: metrics of these documents that were measured otherwise, for those that the file cannot give.
        outcomes: outcomes of dev, for comparing rules. On dev, each half then decides the other, unless the decision is
            another than the tuned one.

    Raises:
        DataError: the file does not fit the corpus; names the document or label.
        ConfigError: a decision for a single-label corpus.
    """
    corpus = Corpus.open(gold)
    corpus.verify()  # Arrow reads a shard with a flipped byte beyond its memory, which ends the process
    one_label = corpus.manifest.task == "single_label"
    if one_label and decision is not None:
        raise ConfigError(
            f"{gold}: single-label: the best label counts as predicted; leave out --threshold"
        )
    part = corpus.split(split)
    doc_ids = part.doc_ids()
    labels = corpus.labels
    predicted = read_predictions(predictions, labels.labels, doc_ids, config.top_k)
    truth = part.label_matrix()
    tuned_here = decision is None and not one_label
    if tuned_here:
        decision = outcomes_of(predicted, truth).tuned("micro")
    decision_in_use = decision
    compared_outcomes = outcomes
    if decision is not None and outcomes is not None and split == "dev":
        halves = HalfOutcomes.of(predicted, truth, calibrated=True)
        compared_outcomes = halves
        if _is_tuned(decision, outcomes, labels):
            decision_in_use = halves.tuned(decision.rule, labels.train_counts)
            if decision.thresholds_L is not None:
                decision = decision_in_use
    evaluation = evaluate(
        predicted,
        truth,
        labels,
        corpus.train_documents,
        config=config,
        decision=decision,
        documents=EvaluatedDocuments(doc_ids, part.lengths),
    )
    for name, value in evaluation.metrics.items():
        if value is None and measured_before and name in measured_before:
            evaluation.metrics[name] = measured_before[name]
    evaluation.metrics["threshold_tuned_here"] = tuned_here
    if decision_in_use is not None and compared_outcomes is not None:
        evaluation.details["rules"] = compare_rules(
            predicted, truth, labels, decision_in_use, compared_outcomes
        )
    write_evaluation(output, evaluation)
    return evaluation


def _is_tuned(decision: Decision, outcomes: Outcomes, labels: LabelTable) -> bool:
    """Whether the thresholds are those that its rule gives on dev, and nobody has edited them since."""
    label_ids = np.arange(len(labels))
    tuned = outcomes.tuned(decision.rule, labels.train_counts)
    return np.array_equal(decision.limit(label_ids), tuned.limit(label_ids))
