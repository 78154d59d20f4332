"""The whole job: prepare → MIG → plant → fine-tune → evaluate → report, each stage skipped when it is done."""

import json
from pathlib import Path

import numpy as np
from rich.console import Console

from xmtc.config.run_state import RunState
from xmtc.config.schema import RunConfig
from xmtc.config.snapshot import config_hash
from xmtc.data.corpus import Corpus
from xmtc.data.prepare import prepare
from xmtc.errors import ConfigError
from xmtc.evaluate.summary import summary_table
from xmtc.mig import TokenRanking, rank_corpus, ranking_fingerprint, show
from xmtc.models.encoders import pretrained_name
from xmtc.models.heads import LabelAttentionConfig
from xmtc.orchestrate.paths import RunPaths
from xmtc.orchestrate.reporting import report_runs
from xmtc.track.console import print_line
from xmtc.track.progress import Progress

STAGES = ("prepare", "mig", "plant", "finetune", "evaluate", "report")


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
    with RunState.open(
        paths.root, config, resume=config.track.resume, stages=STAGES, seeds=seeds, world_size=world
    ) as state:
        with state.stage("prepare", config_hash(config.data)):
            corpus = prepare_stage(config)
        state.set_fingerprint("corpus", corpus.fingerprint)
        with state.stage("mig", ranking_fingerprint(corpus.fingerprint, config.mig)):
            ranking = rank_stage(config, corpus)
        state.set_fingerprint("mig", ranking.fingerprint)
        try:
            for stage, fingerprint in model_stages(config, ranking.fingerprint):
                if state.is_done(stage, fingerprint):
                    print_line(f"{stage}: done before, skipped")
                    continue
                with state.stage(stage, fingerprint):
                    run_workers(stage, config, paths)
        finally:
            end_workers(config)
        with state.stage("report", ""):
            for split in paths.evaluated():
                report_runs([paths.root], paths.evaluation(split) / "report.html", split)
    print_summary(paths)
    return paths.root


def check(config: RunConfig) -> None:
    """Refuse what cannot work before hours are spent on it.

    Raises:
        ConfigError: planting without a label-attention head.
    """
    if config.plant.enabled and not isinstance(config.model.head, LabelAttentionConfig):
        raise ConfigError(
            f"plant.enabled: true needs a head with label attention, but model.head.kind is {config.model.head.kind}; "
            "set plant.enabled=false"
        )


def prepare_stage(config: RunConfig) -> Corpus:
    """Read and tokenise the source, or open the corpus that is there."""
    return prepare(config.data, pretrained_name(config.model.encoder), progress=Progress())


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
