"""Fit the lexical branch, on this machine's cores and without the backbone."""

from xmtc.data.corpus import Corpus
from xmtc.models.config import LexicalConfig
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.track.progress import Progress
from xmtc.train.fit_lexical import fit_lexical


def fit_branch(config: RunConfig, paths: RunPaths, settings: LexicalConfig, corpus: Corpus) -> None:
    """Fit the lexical branch and save it in the run directory."""
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
