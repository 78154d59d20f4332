"""The whole job: prepare → MIG → plant → fine-tune → evaluate → report. Finished stages are skipped.

`xmtc.stages.table` lists the stages; this module runs those that a worker does not run alone.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from xmtc.artefact.info import model_digest
from xmtc.config.plain import to_plain
from xmtc.data.corpus import Corpus
from xmtc.data.manifest import in_use
from xmtc.errors import ConfigError, Interrupted
from xmtc.estimate.memory import label_lines
from xmtc.estimate.size import size_of_corpus
from xmtc.evaluate.summary import summary_table
from xmtc.planting.mig.ranking import TokenRanking
from xmtc.preflight.configuration import check, check_tokenizer
from xmtc.preflight.doctor import check_machine
from xmtc.report.runs import report_runs, warn_if_worse
from xmtc.run.config import RunConfig
from xmtc.run.copies import RunCopies
from xmtc.run.corpus_users import check_other_runs
from xmtc.run.directory import RunPaths, Stage
from xmtc.run.fingerprints import Fingerprints
from xmtc.run.state import RunState, check_resume
from xmtc.stages.comparing import compare_with_initial_model
from xmtc.stages.prepare import fingerprint_of, prepare_corpus, rank_tokens
from xmtc.stages.table import StageEntry, needed_stages
from xmtc.storage.fetch import remote_parts
from xmtc.track.console import print_line
from xmtc.track.tracker import check_sinks


def train_run(
    config: RunConfig, *, overwrite: bool = False, finish: bool = False
) -> Path:
    """Run the whole job; finished stages are skipped.

    Args:
        config: configuration of the run.
        overwrite: replace a finished run whose data or first weights have changed since.
        finish: do not train the remaining epochs of an interrupted run; its best epoch so far becomes the model.

    Returns:
        The run directory.

    Raises:
        XmtcError: the user has something to fix; the run can then be resumed.
    """
    copies = RunCopies(config)
    if finish and _is_finished(copies):
        print_line(
            f"--finish: {copies.paths.root}: this run is finished, so that nothing is left to do"
        )
        print_summary(copies.paths)
        return copies.paths.root
    check(config)
    check_machine(config)
    with copies.published():
        if finish and not copies.paths.best_of(Stage.FINETUNE).is_file():
            raise _not_measured(copies.paths)
        local = copies.fetch_inputs()
        if not overwrite:
            _check_unfinished(copies, local)
        with RunState.open(
            copies.paths.root,
            config,
            resume=config.track.resume,
            stages=[entry.stage for entry in needed_stages(config)],
            seeds={"run": config.seed},
            world_size=max(1, config.distributed.max_workers),
        ) as state:
            finetune = state.record.stages.get(Stage.FINETUNE)
            if finetune is not None and finetune.state != "done":
                check_sinks(copies.paths.root, config.track, to_plain(config))
            _run_stages(copies, local, state, finish=finish)
    print_summary(copies.paths)
    if copies.run_uri is not None:
        print(f"these are copies of {copies.run_uri}")
    return copies.paths.root


def _is_finished(copies: RunCopies) -> bool:
    """Whether the run is finished, as far as its record on this machine says, and its results are there."""
    config, paths = copies.config, copies.paths
    record = check_resume(paths.root, config, config.track.resume)
    has_results = bool(paths.evaluated()) and (paths.model / "config.json").is_file()
    return has_results and record is not None and record.finished


def _check_unfinished(copies: RunCopies, local: RunConfig) -> None:
    """Refuse to replace a finished run whose data or initial weights are others now."""
    root = copies.paths.root
    record = check_resume(root, copies.config, copies.config.track.resume)
    if record is not None and record.finished:
        now = {"corpus": fingerprint_of(local), **_weights(copies)}
        changed = [
            name
            for name in now
            if record.fingerprints.get(name, now[name]) != now[name]
        ]
        if changed:
            name = f"name={copies.config.name}-2"
            if "corpus" in changed:
                name += f" data.corpus={copies.config.data.corpus.rstrip('/')}-2"
            raise ConfigError(
                f"{root}: this run is finished, and its {changed[0]} has changed since (source, tokenizer, weights or "
                f"version); to replace its model and report: xmtc train {copies.config.name}.yaml --overwrite (or your "
                f"own file or data instead of {copies.config.name}.yaml); to keep them, add {name}"
            )


def _weights(copies: RunCopies) -> dict[str, str]:
    """Identify the weights that training starts from, where the settings do not."""
    start = copies.paths.initial_model
    digests = {
        "initial model": "" if start is None else model_digest(start),
        "encoder": copies.config.model.encoder.weights,
    }
    return {name: digest for name, digest in digests.items() if digest}


def _run_stages(
    copies: RunCopies, local: RunConfig, state: RunState, *, finish: bool
) -> None:
    with _stage(state, copies, Stage.PREPARE, Fingerprints(copies.config).prepare()):
        corpus = _prepare(copies, local)
    state.set_fingerprint("corpus", corpus.fingerprint)
    with in_use(corpus.path, corpus.fingerprint):
        _run_with_corpus(copies, local, state, corpus, finish=finish)


def _run_with_corpus(
    copies: RunCopies,
    local: RunConfig,
    state: RunState,
    corpus: Corpus,
    *,
    finish: bool,
) -> None:
    config, paths = copies.config, copies.paths
    for line in label_lines(config, size_of_corpus(corpus)):
        print_line(line)
    weights = _weights(copies)
    fingerprints = Fingerprints(
        config, corpus.fingerprint, weights.get("initial model", "")
    )
    stages = needed_stages(config)
    if any(entry.stage is Stage.MIG for entry in stages):
        with _stage(state, copies, Stage.MIG, fingerprints.mig()):
            rank_tokens(config, paths, corpus)
        state.set_fingerprint("token ranking", fingerprints.mig())
    try:
        for name, digest in weights.items():
            state.set_fingerprint(name, digest)
        if finish:
            _finish(
                paths,
                state,
                fingerprints.finetune() if config.model.head.scores else None,
            )
        for entry in stages:
            if entry.load_work is not None:
                _run_on_workers(
                    copies, state, corpus, entry, entry.fingerprint(fingerprints)
                )
    finally:
        if config.distributed.max_workers > 0:
            from xmtc.cluster.connection import (
                disconnect,
            )  # of the Ray that this run started, if it did

            disconnect(config)
    with _stage(state, copies, Stage.REPORT, fingerprints.report()):
        try:
            compare_with_initial_model(local, paths, corpus)
        finally:
            for split in paths.evaluated():
                report_runs([paths.root], paths.report(split), split)
                if config.model.init_from is not None:
                    warn_if_worse(paths.root, split)


def _run_on_workers(
    copies: RunCopies,
    state: RunState,
    corpus: Corpus,
    entry: StageEntry,
    fingerprint: str,
) -> None:
    """Run a stage that needs the model, unless it is done."""
    stage, paths = entry.stage, copies.paths
    results = _results(paths, corpus) if stage is Stage.EVALUATE else []
    if _is_done(state, stage, fingerprint, results):
        return
    with _stage(state, copies, stage, fingerprint):
        late_signal = run_workers(stage, copies)
        if stage is Stage.EVALUATE:
            paths.remove(paths.against_initial_model("after").root)
    if late_signal is not None:
        raise Interrupted(f"{stage} has ended", late_signal)
    if stage is Stage.SCORERS and copies.config.model.head.scores:
        report_runs([paths.root], paths.report("dev"), "dev")
        print_line(f"first report: {paths.report('dev')}")


def _results(paths: RunPaths, corpus: Corpus) -> list[Path]:
    """List what the last stage writes. Remove the evaluation of a test split that the corpus no longer has."""
    if "test" not in corpus.splits:
        paths.remove(paths.evaluation("test"))
    return [
        paths.model / "config.json",
        *(paths.metrics(split) for split in corpus.splits if split != "train"),
    ]


@contextmanager
def _stage(
    state: RunState, copies: RunCopies, stage: Stage, fingerprint: str
) -> Iterator[None]:
    """Record a stage and publish its start and its result."""
    with state.stage(stage, fingerprint):
        copies.publish_run()
        yield
    copies.publish_run()


def _finish(paths: RunPaths, state: RunState, fingerprint: str | None) -> None:
    """Declare fine-tuning done, with the best epoch so far.

    Raises:
        ConfigError: it was measured on other data or weights.
    """
    record = state.record.stages.get(Stage.FINETUNE)
    if record is None or record.fingerprint != fingerprint:
        raise _not_measured(paths)
    state.set_stage(Stage.FINETUNE, replace(record, state="done", error=None))


def _not_measured(paths: RunPaths) -> ConfigError:
    return ConfigError(
        f"--finish: {paths.root}: no epoch of {Stage.FINETUNE} has been measured; leave --finish out"
    )


def _is_done(
    state: RunState, stage: Stage, fingerprint: str, results: Sequence[Path]
) -> bool:
    done = state.is_done(stage, fingerprint) and all(path.is_file() for path in results)
    if done:
        print_line(f"{stage}: already done, skipped")
    return done


def prepare_stage(config: RunConfig) -> Corpus:
    """Prepare only the corpus, see `xmtc prepare`."""
    check_tokenizer(config)
    copies = RunCopies(config)
    return _prepare(copies, copies.fetch_inputs())


def _prepare(copies: RunCopies, local: RunConfig) -> Corpus:
    """Prepare on the cluster that training joins, or on this machine."""
    mapper = None
    # Copies are only on this machine, so it does all the work.
    if local.distributed.max_workers > 0 and not any(remote_parts(copies.config.data)):
        from xmtc.cluster.tasks import cluster_mapper

        mapper = cluster_mapper(local)
    if copies.corpus_uri is not None:
        copies.fetch_corpus(fingerprint_of(local))
    corpus = prepare_corpus(local, mapper, check_other_runs(copies.config))
    copies.publish_corpus()
    return corpus


def mig_stage(config: RunConfig) -> tuple[Corpus, TokenRanking]:
    """Prepare the corpus and rank its tokens, see `xmtc mig`."""
    corpus = prepare_stage(config)
    return corpus, rank_tokens(config, RunPaths.of(config), corpus)


def run_workers(stage: Stage, copies: RunCopies) -> int | None:
    """Run a stage in this process, or on Ray workers.

    Returns:
        The signal because of which the run shall stop, if it came too late for the stage, which has ended; else None.
    """
    if copies.config.distributed.max_workers == 0:
        from xmtc.stages.run_stage import run_stage

        run_stage(stage, copies.config, copies.paths)
        return None
    from xmtc.cluster.training import train_on_cluster

    return train_on_cluster(stage, copies)


def print_summary(paths: RunPaths) -> None:
    """Print the metrics of the last evaluated split, and the paths of report and model."""
    split = paths.evaluated()[-1]
    metrics = json.loads(paths.metrics(split).read_text(encoding="utf-8"))
    Console().print(summary_table(metrics, f"{paths.root.name}: {split}"))
    print(f"report: {paths.report(split)}")
    print(f"model:  {paths.model}")
