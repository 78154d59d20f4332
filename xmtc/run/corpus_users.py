"""Which runs were trained on a corpus: their reports, ablations and evidence need it as it was."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from xmtc.config import yaml_tree
from xmtc.errors import DataError, XmtcError
from xmtc.files import resolve_links
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunDirectory, RunPaths
from xmtc.run.state import has_results, read_run
from xmtc.storage.config import is_remote


def check_other_runs(config: RunConfig) -> Callable[[str], None]:
    """Return what refuses to replace the corpus of a configuration while another run needs it.

    The function takes the fingerprint of the corpus that would be replaced, and raises DataError with the name of a
    run in the same folder that was trained on it.
    """

    def check(fingerprint: str) -> None:
        run = next(_other_runs(config, fingerprint), None)
        if run is None:
            return
        corpus = config.data.corpus
        free = f"{corpus.rstrip('/').rpartition('/')[0] or '.'}/{config.name}"
        raise DataError(
            f"{corpus}: the run {run} was trained on this corpus, and the data or settings of the run {config.name} "
            f"make another one; add data.corpus={free}, or a place of your choice, so that each run has its own"
        )

    return check


def _other_runs(config: RunConfig, fingerprint: str) -> Iterator[Path]:
    """Find the runs beside that of a configuration which have trained something on its corpus."""
    own = RunPaths.of(config).root
    place = _place(config.data.corpus)
    for record_path in sorted(own.parent.glob("*/run.json")):
        run = record_path.parent
        if run == own:
            continue
        with suppress(
            XmtcError
        ):  # whether another run's record is damaged does not matter here
            record = read_run(run)
            if record is None or record.fingerprints.get("corpus") != fingerprint:
                continue
            corpus = _corpus_of(run)
            if corpus is None or _place(corpus) != place:
                continue
            if has_results(run, record):
                yield run


def _corpus_of(run: Path) -> str | None:
    """Read where the corpus of a run is; None if its configuration does not say it."""
    settings = yaml_tree.read(RunDirectory(run).config, []).plain()
    data = settings.get("data") if isinstance(settings, dict) else None
    corpus = data.get("corpus") if isinstance(data, dict) else None
    return corpus if isinstance(corpus, str) else None


def _place(corpus: str) -> str:
    """Write the place of a corpus in one way."""
    return corpus.rstrip("/") if is_remote(corpus) else str(resolve_links(Path(corpus)))
