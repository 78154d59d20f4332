"""Fit the lexical branch, on this machine's cores and without the backbone."""

from xmtc.data.corpus import Corpus
from xmtc.models.lexical import LexicalConfig
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.track.progress import Progress
from xmtc.train.lexical import fit_lexical


def fit_branch(config: RunConfig, settings: LexicalConfig, corpus: Corpus) -> None:
    """Fit the lexical branch and save it in the run directory."""
    tokenizer, path = corpus.tokenizer(), RunPaths.of(config).lexical
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
    path.parent.mkdir(exist_ok=True)
    lexical.save(path)
