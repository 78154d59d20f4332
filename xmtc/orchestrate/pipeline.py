"""The whole job: prepare → MIG → plant → fine-tune → evaluate → report, each stage skipped when it is done."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from xmtc.config.run_state import RunState
from xmtc.config.schema import RunConfig
from xmtc.config.snapshot import config_hash
from xmtc.data.corpus import Corpus
from xmtc.data.prepare import prepare
from xmtc.evaluate.summary import summary_table
from xmtc.mig import TokenRanking, rank_corpus, ranking_fingerprint, show
from xmtc.models.encoders import pretrained_name
from xmtc.models.heads import LabelAttentionConfig
from xmtc.orchestrate.check import check, check_tokenizer
from xmtc.orchestrate.copies import (
    fetch_locked,
    fetch_run,
    has_remote_parts,
    local_source,
    publish_corpus,
    publish_run,
    published_run,
)
from xmtc.orchestrate.estimate import label_lines
from xmtc.orchestrate.paths import RunPaths
from xmtc.orchestrate.reporting import report_runs
from xmtc.track.console import print_line
from xmtc.track.progress import Progress
from xmtc.train.lexical import fit_lexical


def train_run(config: RunConfig) -> Path:
    """Run the whole job; finished stages are skipped.

    Returns:
        The run directory.

    Raises:
        XmtcError: what the user has to mend; the run directory can be resumed after that.
    """
    check(config)
    paths = RunPaths.of(config)
    seeds = {"run": config.seed}
    world = max(1, config.distributed.workers)
    with (
        published_run(paths),
        RunState.open(
            paths.root, config, resume=config.track.resume, stages=stages(config), seeds=seeds, world_size=world
        ) as state,
    ):
        with _stage(state, paths, "prepare", config_hash(config.data)):
            corpus = prepare_stage(config)
            corpus.verify()  # a flipped bit would be learned from without an error
        state.set_fingerprint("corpus", corpus.fingerprint)
        for line in label_lines(config):
            print_line(line)
        ranking = ranking_fingerprint(corpus.fingerprint, config.mig)
        if "mig" in stages(config):
            with _stage(state, paths, "mig", ranking):
                rank_stage(config, corpus)
            state.set_fingerprint("mig", ranking)
        lexical_stage(config, corpus, paths, state)
        try:
            for stage, fingerprint in model_stages(config, ranking):
                if state.is_done(stage, fingerprint):
                    print_line(f"{stage}: done before, skipped")
                    continue
                with _stage(state, paths, stage, fingerprint):
                    run_workers(stage, config, paths)
                    fetch_run(paths)  # rank 0 may have been on another node
        finally:
            end_workers(config)
        with _stage(state, paths, "report", ""):
            for split in paths.evaluated():
                report_runs([paths.root], paths.evaluation(split) / "report.html", split)
    print_summary(paths)
    return paths.root


@contextmanager
def _stage(state: RunState, paths: RunPaths, name: str, fingerprint: str) -> Iterator[None]:
    """A stage, whose beginning and result are published."""
    with state.stage(name, fingerprint):
        publish_run(paths)
        yield
    publish_run(paths)


def stages(config: RunConfig) -> list[str]:
    """The stages of the whole job, in order."""
    optional = {
        "mig": isinstance(config.model.head, LabelAttentionConfig),  # planted by it, or compared with it
        "lexical": config.model.lexical is not None,
        "plant": config.plant.enabled,
    }
    names = ("prepare", "mig", "lexical", "plant", "finetune", "evaluate", "report")
    return [name for name in names if optional.get(name, True)]


def prepare_stage(config: RunConfig) -> Corpus:
    """Read and tokenise the source, on the cluster that training joins or on this machine; or open what is there."""
    check_tokenizer(config)
    paths, mapper = RunPaths.of(config), None
    # Copies are on this machine only, which then does the work by itself.
    if config.distributed.workers > 0 and not has_remote_parts(config.data):
        from xmtc.orchestrate.ray_tasks import cluster_mapper

        mapper = cluster_mapper(config)
    corpus = prepare(
        replace(local_source(config.data, config.storage), corpus=str(paths.corpus)),
        pretrained_name(config.model.encoder),
        map_unordered=mapper,
        progress=Progress(),
        fetch=lambda fingerprint: fetch_locked(paths, fingerprint),
    )
    publish_corpus(paths)
    return corpus


def mig_stage(config: RunConfig) -> tuple[Corpus, TokenRanking]:
    """Prepare and rank."""
    corpus = prepare_stage(config)
    return corpus, rank_stage(config, corpus)


def rank_stage(config: RunConfig, corpus: Corpus) -> TokenRanking:
    """Rank tokens by information gain, or load the ranking that is there."""
    ranking, reused = rank_corpus(corpus, config.mig, RunPaths.of(config).ranking, progress=Progress())
    if reused:
        print_line("mig: done before, skipped")
    elif ranking.unranked:
        print_line(f"mig: {ranking.unranked:,} of {len(corpus.labels):,} labels have no informative token in train")
    return ranking


def lexical_stage(config: RunConfig, corpus: Corpus, paths: RunPaths, state: RunState) -> None:
    """Fit the lexical branch, where the configuration asks for one: on this machine's cores, without the backbone."""
    settings = config.model.lexical
    fingerprint = config_hash(corpus.fingerprint, config.seed, settings)
    if settings is None:
        return
    if state.is_done("lexical", fingerprint):
        print_line("lexical: done before, skipped")
        return
    with _stage(state, paths, "lexical", fingerprint):
        tokenizer = corpus.tokenizer()
        lexical = fit_lexical(
            corpus.split("train"),
            corpus.split("dev"),
            settings,
            vocabulary=len(tokenizer),
            special_token_ids=tokenizer.all_special_ids,
            task=corpus.manifest.task,
            seed=config.seed,
            progress=Progress(),
        )
        paths.lexical.parent.mkdir(exist_ok=True)
        lexical.save(paths.lexical)


def show_labels(corpus: Corpus, ranking: TokenRanking, labels: list[str], top: int) -> None:
    """Print the top tokens of labels; of the median and the most frequent label when none is named."""
    if not labels:
        order = np.argsort(np.asarray(corpus.labels.train_counts))
        labels = [corpus.labels.labels[int(order[len(order) // 2])], corpus.labels.labels[int(order[-1])]]
    console = Console()
    for label in labels:
        index = corpus.labels.index(label)
        console.print(show(ranking, index, corpus.tokenizer(), top, title=f"{label} {corpus.labels.names[index]}"))


def model_stages(config: RunConfig, ranking: str) -> list[tuple[str, str]]:
    """The stages that need the model, each with a fingerprint of all that its result depends on."""
    plant = config_hash(ranking, config.seed, config.model, config.plant)
    finetune = config_hash(plant, config.finetune)
    stages = [("finetune", finetune), ("evaluate", config_hash(finetune, config.evaluate))]
    return [("plant", plant), *stages] if config.plant.enabled else stages


def run_workers(stage: str, config: RunConfig, paths: RunPaths) -> None:
    """Run a stage in this process, or on Ray workers."""
    if config.distributed.workers == 0:
        from xmtc.orchestrate.stages import run_stage

        run_stage(stage, config, paths)
    else:
        from xmtc.orchestrate.cluster import run_on_ray

        run_on_ray(stage, config, paths)


def end_workers(config: RunConfig) -> None:
    """End the Ray of this run, if it has one."""
    if config.distributed.workers > 0:
        from xmtc.orchestrate.cluster import disconnect

        disconnect(config)


def print_summary(paths: RunPaths) -> None:
    """Print the table of the last evaluated split, and where the report is."""
    split = paths.evaluated()[-1]
    folder = paths.evaluation(split)
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    Console().print(summary_table(metrics, f"{paths.root.name}: {split}"))
    print(f"report: {folder / 'report.html'}")
    print(f"model:  {paths.model}")
    if paths.root_uri:
        print(f"these are copies of {paths.root_uri}")
