"""What a run names by URI: local copies before its stages, and publishing around each of them."""

import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from xmtc.artefact.hub import locate_model
from xmtc.artefact.output import check_replaceable, model_of_run
from xmtc.artefact.trial import try_native_files
from xmtc.data import manifest as manifests
from xmtc.data.manifest import Manifest
from xmtc.errors import ConfigError, StorageError
from xmtc.evaluate import layout
from xmtc.files import locked
from xmtc.run.directory import RunDirectory, RunPaths
from xmtc.storage.config import StorageConfig, is_remote, on_this_machine
from xmtc.storage.fetch import fetch, fetch_parts
from xmtc.training.layout import of_a_checkpoint

if TYPE_CHECKING:
    from xmtc.data.corpus import Corpus
    from xmtc.run.config import RunConfig
    from xmtc.storage.mirror import Mirror

logger = logging.getLogger(__name__)

_STATUS = ("run.json", "config.yaml", "metrics.jsonl")


class RunCopies:
    """This machine's copies of what a run names by URI. What it names by path is used directly, and nothing is copied.

    The process that starts the run makes the copies once, before the stages, and publishes the run directory before and
    after each stage. Workers on other nodes receive this object, and make copies of their own.

    Attributes:
        config: the configuration, as the user wrote it.
        paths: where the stages find their files.
    """

    def __init__(self, config: "RunConfig") -> None:
        from xmtc.storage.mirror import Mirror

        self.config, paths = config, RunPaths.of(config)
        runs, corpus, start = (
            config.track.directory,
            config.data.corpus,
            config.model.init_from,
        )
        run_uri = f"{runs.rstrip('/')}/{config.name}" if is_remote(runs) else None
        self._run = Mirror(
            paths.root, config.storage.remote(run_uri) if run_uri else None
        )
        self._corpus = Mirror(
            paths.corpus, config.storage.remote(corpus) if is_remote(corpus) else None
        )
        self.paths = replace(paths, mirror=self._run)
        # Workers run in other directories.
        self._start = (
            str(Path(start).absolute())
            if start is not None and Path(start).exists()
            else start
        )

    @property
    def run_uri(self) -> str | None:
        """Where the run is published; None if it stays here."""
        return self._run.remote.uri if self._run.remote else None

    @property
    def corpus_uri(self) -> str | None:
        """Where the corpus is published; None if it stays here."""
        return self._corpus.remote.uri if self._corpus.remote else None

    def fetch_inputs(self) -> "RunConfig":
        """Copy source and initial model, which `paths` then has. Return the configuration of these copies.

        Raises:
            StorageError: there is nothing at a URI, or it cannot be copied.
            ConfigError: `model.init_from` is no model.
        """
        self._fetch_initial_model()
        data = fetch_parts(self.config.data.source, self.config.storage)
        return replace(
            self.config,
            data=replace(self.config.data, source=data, corpus=str(self.paths.corpus)),
        )

    def fetch_for_worker(self) -> None:
        """Update the copies that a worker needs: run directory, corpus and initial model.

        Raises:
            StorageError: something cannot be read, or is damaged at the URI.
        """
        self.fetch_run()
        self.fetch_corpus()
        self._fetch_initial_model()

    def _fetch_initial_model(self) -> None:
        if self._start is not None:
            self.paths = replace(
                self.paths,
                initial_model=initial_model_folder(self._start, self.config.storage),
            )

    def fetch_run(self) -> None:
        """Update the local run directory, without checkpoints: only one is needed, and `CheckpointStore` fetches it.

        Raises:
            StorageError: it cannot be read.
        """
        self._run.pull(choose=lambda name: not of_a_checkpoint(name))

    def publish_run(self) -> None:
        """Copy changed files of the run directory to its URI.

        Raises:
            StorageError: it cannot be written, or another machine has written there meanwhile.
        """
        if self._run.changed_elsewhere("run.json"):
            raise StorageError(
                f"{self._run.place}: another machine has continued this run meanwhile; let one of them finish, then "
                "run the same command again, or add name=OTHER"
            )
        self._run.push(choose=lambda name: not of_a_checkpoint(name))

    @contextmanager
    def published(self) -> Iterator[None]:
        """Fetch the run directory, and publish it at the end, also after an error of the run."""
        self.fetch_run()
        try:
            yield
        except StorageError:
            raise
        except BaseException:
            try:
                self.publish_run()
            except StorageError as error:  # the first error must not be lost
                logger.warning("%s", error)
            raise
        self.publish_run()

    def fetch_corpus(self, fingerprint: str | None = None) -> None:
        """Copy the corpus, and compare each shard with its hash.

        Args:
            fingerprint: fingerprint of the wanted corpus, which the caller makes if it is not there. None: any.

        Raises:
            StorageError: it cannot be read, or written where it has to be made; or its files at the URI are damaged.
        """
        if self._corpus.remote is None:
            return
        with locked(self.paths.corpus):
            own = _manifest(self.paths.corpus)
            if own is not None and _fingerprint(own) == fingerprint:
                return
            theirs = self._corpus.remote.read(manifests.NAME)
            if theirs is not None and theirs == own:
                return
            wanted = theirs is not None and fingerprint in (None, _fingerprint(theirs))
            if (
                own is None or wanted
            ):  # an interrupted copy, or a corpus that must not be mixed with another
                with manifests.replaceable(self.paths.corpus):
                    shutil.rmtree(self.paths.corpus, ignore_errors=True)
            if theirs is not None and wanted:
                self._pull_corpus(
                    Manifest.parse(theirs, f"{self._corpus.place}/{manifests.NAME}")
                )
            elif fingerprint is not None:  # before hours of work
                self._corpus.remote.check_writable()

    def _pull_corpus(self, manifest: Manifest) -> None:
        self._corpus.pull(sha256={file.path: file.sha256 for file in manifest.files()})
        place = self._corpus.place
        logger.info(
            "corpus %s: copied to %s, every shard compared with its hash",
            place,
            self.paths.corpus,
        )

    def publish_corpus(self) -> None:
        """Copy the corpus to its URI, its manifest last, unless it is there.

        Raises:
            StorageError: it cannot be written.
        """
        mirror = self._corpus
        if mirror.remote is not None and mirror.remote.read(
            manifests.NAME
        ) != _manifest(mirror.local):
            _replace(mirror)
            logger.info("corpus %s: published", mirror.place)


def _manifest(corpus: Path) -> bytes | None:
    path = corpus / manifests.NAME
    return path.read_bytes() if path.is_file() else None


def _fingerprint(manifest: bytes) -> str | None:
    found = re.search(rb'"fingerprint": "(\w+)"', manifest)
    return found.group(1).decode() if found else None


def _replace(mirror: "Mirror") -> None:
    """Publish a directory over an older one. A reader may find it missing for a while, but never a mixture."""
    mirror.remove("")
    mirror.push(choose=lambda name: not name.startswith("hidden/"))


def open_corpus(config: "RunConfig") -> "Corpus":
    """Open the corpus of a run; copy it first if it is at a URI."""
    from xmtc.data.corpus import Corpus

    copies = RunCopies(config)
    copies.fetch_corpus()
    return Corpus.open(copies.paths.corpus)


def initial_model_folder(name: str, storage: StorageConfig) -> Path:
    """Find the folder of the exported model that `model.init_from` names; fetch it if it is at a URI.

    Raises:
        ConfigError: there is no model.
        CheckpointError, StorageError: it cannot be fetched.
    """
    place = locate_model(str(fetch(name, storage)))
    folder = found if (found := RunDirectory(place).model).is_dir() else place
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"model.init_from: {name}: no exported model there; give the `model` folder of a run"
        )
    if on_this_machine(name) is None:
        try_native_files(folder)
    return folder


def fetch_model(path: str) -> Path:
    """Return a local model unchanged, that of a run, or the local copy of a model at a URI or on the Hugging Face Hub.

    Raises:
        StorageError: there is nothing, or it cannot be copied.
        CheckpointError: the Hub has no such model, or native code cannot read a file of a model that was fetched.
    """
    if is_remote(path):
        folder = model_of_run(fetch(path))
        if on_this_machine(path) is None:
            try_native_files(folder)
        return folder
    return model_of_run(Path(path)) if Path(path).exists() else locate_model(path)


def fetch_status(path: str) -> Path:
    """Fetch the files of a run directory that show its state, without weights."""
    return fetch(
        path,
        choose=lambda name: (
            name in _STATUS or name.endswith(("/manifest.json", f"/{layout.METRICS}"))
        ),
    )


@contextmanager
def published_model(path: str) -> Iterator[Path]:
    """Yield a local directory to write a model to; publish it at the end, replacing an earlier one.

    Args:
        path: as the user gave it: directory or URI.

    Raises:
        ConfigError: something else is at the URI.
        StorageError: it cannot be read or written.
    """
    if (local := on_this_machine(path)) is not None:
        yield local
        return
    mirror, remote = StorageConfig().mirror(path), StorageConfig().remote(path)
    if remote.is_file():
        raise ConfigError(f"{path}: is a file; give a new or an empty folder")
    check_replaceable(path, remote.list(), remote.read("config.json"))
    mirror.pull(exact=True)
    yield mirror.local
    _replace(mirror)
    logger.info("%s: published", path)
