"""The models that are served, each with its versions, of which one answers.

    DIR/NAME/VERSION/…   exported models
    DIR/NAME/current     the version that answers; without this file, the only one

A version is loaded beside the one that answers, checked, and put in its place between two requests. One that fails to
load or fails a check changes nothing, whatever its failure is: its files come from whoever made the model. The version
before stays in memory until another one needs the place.
"""

import asyncio
import contextlib
import gc
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import psutil
import torch
from fastapi import Request

from xmtc.artefact.info import model_digest, read_description
from xmtc.artefact.trial import try_native_files
from xmtc.desk.config import ServeConfig
from xmtc.desk.serve.refusals import RequestError
from xmtc.desk.serve.service import Service
from xmtc.distributed.memory import release_freed_memory
from xmtc.errors import CheckpointError, ConfigError, XmtcError
from xmtc.files import read_file, reading, reason_of, write_text
from xmtc.predict.predictor import Model
from xmtc.predict.smoke import check_answers
from xmtc.storage.config import StorageConfig, on_this_machine
from xmtc.storage.fetch import fetch
from xmtc.track.console import print_line

logger = logging.getLogger(__name__)

LOOK_SECONDS = 15.0
"""Time between two looks at the folder."""
_CURRENT = "current"
_DIGEST_DIGITS = 12
_NAME = re.compile(r"\w[\w.-]*")
Stamp = tuple[int, int, int]
"""Number of files, sum of their sizes, and the latest time of a change, in nanoseconds."""
Load = Callable[[Path], Model]


class Models:
    """The models of a folder, or a single one.

    Attributes:
        look: set it to look for other versions now.

    Args:
        config: settings of the server.
        place: folder or URI; see above.
        load: reads an exported model.

    Raises:
        ConfigError: the folder has no models, or several and there is one file of annotations.
        XmtcError: a model cannot be served.
    """

    def __init__(self, config: ServeConfig, place: str, load: Load) -> None:
        self.config = config
        self.place = place
        self.services: dict[str, Service] = {}
        self.look = asyncio.Event()
        self._load = load
        self._switching = asyncio.Lock()
        self._single: Path | None = None
        self._earlier: dict[str, Service] = {}
        self._failed: dict[str, tuple[str, Stamp] | None] = {}
        names = self._names() if place else []
        if place and not names:
            raise ConfigError(
                f"--models {place}: no models there; put each exported model into NAME/VERSION"
            )
        if len(names) > 1 and (config.annotations or config.queue):
            raise ConfigError(
                f"--models {place}: {len(names)} models, but annotations are for one; serve it alone"
            )
        for name in names:
            self.services[name] = self._loaded(name, self._current(name))
            self.services[name].take_over()

    @classmethod
    def single(
        cls, model: Model, config: ServeConfig, folder: Path | None = None
    ) -> "Models":
        """Serve one loaded model, whatever happens to its folder."""
        models = cls(config, "", lambda _: model)
        if folder is None:
            service = Service(model, config)
        else:
            service = Service(
                model,
                config,
                model_digest(folder)[:_DIGEST_DIGITS],
                stamp=_stamp(folder),
            )
        models.services[service.name] = service
        service.take_over()
        models._single = folder
        return models

    @property
    def first(self) -> Service:
        """The model of requests that choose none."""
        return next(iter(self.services.values()))

    def find(self, name: str | None) -> Service:
        """Return what answers now for a model.

        Raises:
            RequestError: there is no such model.
        """
        if name is None:
            return self.first
        if name not in self.services:
            names = ", ".join(self.services)
            raise RequestError(
                HTTPStatus.NOT_FOUND,
                f"Project {name!r} not found: the models are {names}",
            )
        return self.services[name]

    @contextlib.asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Answer inside the context, and look for other versions."""
        started = self.first
        await started.start()
        watching = asyncio.create_task(self._watch())
        yield
        watching.cancel()
        await asyncio.wait([watching])
        await started.stop()

    def describe(self) -> list[dict[str, Any]]:
        """Describe the models, their versions, and the figures of each on dev."""
        return [
            service.about
            | {"labels": len(service.model.labels), "versions": self._figures(service)}
            for service in self.services.values()
        ]

    async def switch(self, name: str, version: str | None) -> Service:
        """Let another version of a model answer, and write its name to `current`.

        Args:
            name: the model.
            version: its version. Default: as in `current`, read again.

        Raises:
            RequestError: there is no such model or version, or it fails a check; the one that answers stays.
        """
        self.find(name)
        if not self.place:
            raise RequestError(
                HTTPStatus.CONFLICT,
                f"{name}: has no versions here: start the server with --models",
            )
        try:
            async with self._switching:
                await asyncio.to_thread(fetch, self.place)
                wanted = self._current(name) if version is None else version
                return await self._put(name, wanted, remember=True)
        except (
            Exception
        ) as error:  # a candidate may do anything, and must not end the server
            message = f"{name}: {self.find(name).version} stays: {_in_a_line(error)}"
            logger.warning("%s", message)
            raise RequestError(
                HTTPStatus.CONFLICT, message.replace(f"{self._root}/", "")
            ) from error

    async def _put(self, name: str, version: str, *, remember: bool = False) -> Service:
        """Put a version in place: one that is in memory already, or one that is loaded and checked now."""
        answering = self.services.get(name)
        service = self._in_memory(name, version)
        if service is None:
            self._earlier.pop(name, None)  # frees its memory for the other
            service = await asyncio.to_thread(self._loaded, name, version)
        if remember:
            await asyncio.to_thread(self._write_current, name, version)
        self.services[name] = service
        service.take_over()
        if answering is not None and answering is not service:
            self._earlier[name] = answering
            difference = _difference_of_labels(answering, service)
            print_line(
                f"{name}: {version} answers, before {answering.version}{difference}"
            )
        return service

    def _in_memory(self, name: str, version: str) -> Service | None:
        """Find a loaded version whose files have not changed since."""
        for service in (self.services.get(name), self._earlier.get(name)):
            if service is None or service.version != version:
                continue
            if service.stamp == _stamp(self._root / name / version):
                return service
        return None

    async def _watch(self) -> None:
        """Put in place what the folder wants, whenever it changes."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.look.wait(), LOOK_SECONDS)
                self._failed.clear()
            self.look.clear()
            try:
                if (
                    self._single is not None
                    and _stamp(self._single) != self.first.stamp
                ):
                    print_line(
                        "warning: the folder has another model now, or none; start again to serve that one"
                    )
                    return
                async with self._switching:
                    for name in (
                        await asyncio.to_thread(self._names) if self.place else ()
                    ):
                        await self._follow(name)
            except Exception as error:  # a candidate may do anything, and a file may go while it is looked at
                logger.warning("%s", _in_a_line(error))

    async def _follow(self, name: str) -> None:
        """Put the version in `current` in place if it is another one, or its files have changed."""
        answering = self.services.get(name)
        version = _CURRENT
        wanted = None
        try:
            version = self._current(name)
            wanted = (version, _stamp(self._root / name / version))
            is_in_place = answering is not None and wanted == (
                answering.version,
                answering.stamp,
            )
            if not is_in_place and self._failed.get(name) != wanted:
                await self._put(name, version)
        except (
            Exception
        ) as error:  # a candidate may do anything, and must not end the server
            self._failed[name] = wanted
            stays = (
                "no version of it answers"
                if answering is None
                else f"{answering.version} stays"
            )
            logger.warning(
                "%s: %s does not answer, %s: %s",
                name,
                version,
                stays,
                _in_a_line(error),
            )

    def _loaded(self, name: str, version: str) -> Service:
        """Load and check a version.

        Raises:
            XmtcError: there is no such version, it is damaged, its answers differ, or memory does not hold it. Whatever
                exception its files cause is told as one of these.
        """
        folder = self._root / name / version
        if version not in self._versions(name):
            raise ConfigError(
                f"{name}: no version {version!r}; there are {', '.join(self._versions(name)) or 'none'}"
            )
        try:
            return self._tried(folder, name, version)
        except XmtcError:
            raise
        except (
            Exception
        ) as error:  # a candidate may do anything, and must not end the server
            raise CheckpointError(
                f"{folder}: cannot be served: {reason_of(error)}"
            ) from error

    def _tried(self, folder: Path, name: str, version: str) -> Service:
        stamp = _stamp(folder)
        gc.collect()
        release_freed_memory()  # of a model that answered once, before free memory is looked at
        beside = next(iter(self.services.values()), None)
        if beside is not None:
            _check_memory(f"{name}/{version}", stamp[1], beside.model.scorer.device)
        try_native_files(folder)
        model = self._load(folder)
        check_answers(model, folder)
        return Service(
            model, self.config, version, name=name, stamp=stamp, beside=beside
        )

    @property
    def _root(self) -> Path:
        """The folder, or the local copy of the URI."""
        local = on_this_machine(self.place)
        return (
            StorageConfig().mirror(self.place.rstrip("/")).local
            if local is None
            else local
        )

    def _names(self) -> list[str]:
        """List the models of the folder."""
        names = sorted(
            path.name
            for path in _folders(fetch(self.place))
            if self._versions(path.name)
        )
        for name in names:
            if not _NAME.fullmatch(name):
                message = f"--models {self.place}: {name!r}: name it with letters, digits, dots and hyphens"
                raise ConfigError(message)
        return names

    def _versions(self, name: str) -> list[str]:
        return sorted(
            path.name
            for path in _folders(self._root / name)
            if (path / "config.json").is_file()
        )

    def _current(self, name: str) -> str:
        """Read which version answers.

        Raises:
            ConfigError: nobody says which of several.
        """
        path = self._root / name / _CURRENT
        if path.exists():
            with reading(path, ConfigError, "write the name of a version into it"):
                return read_file(path).decode("utf-8-sig").strip()
        versions = self._versions(name)
        if len(versions) != 1:
            raise ConfigError(
                f"{path}: missing; write the version that answers into it: {', '.join(versions)}"
            )
        return versions[0]

    def _write_current(self, name: str, version: str) -> None:
        write_text(self._root / name / _CURRENT, f"{version}\n")
        if on_this_machine(self.place) is None:
            mirror = StorageConfig().mirror(self.place.rstrip("/"))
            mirror.push(choose=lambda file: file == f"{name}/{_CURRENT}")

    def _figures(self, service: Service) -> Mapping[str, Mapping[str, float]]:
        """Read the figures on dev of each version; a version that cannot be read has none here."""
        if not self.place:
            return {service.version: service.model.info.dev}
        figures = {}
        for version in self._versions(service.name):
            with contextlib.suppress(
                CheckpointError
            ):  # it is told when somebody wants it
                figures[version] = read_description(
                    self._root / service.name / version
                ).dev
        return figures


def models_of(request: Request) -> Models:
    """Return the models of the application."""
    return request.app.state.models


async def chosen(request: Request, model: str | None = None) -> Service:
    """Return the version that answers a request, also if another one takes its place meanwhile."""
    service = models_of(request).find(model)
    request.scope["xmtc"] = service.headers  # the guard adds them to the answer
    return service


def _in_a_line(error: Exception) -> str:
    """Say why a version does not answer, in one line."""
    reason = str(error) if isinstance(error, XmtcError) else reason_of(error)
    return " ".join(reason.split())


def _folders(folder: Path) -> list[Path]:
    with reading(folder, ConfigError, "give a folder with models at NAME/VERSION"):
        return [
            path
            for path in folder.iterdir()
            if path.is_dir() and not path.name.startswith(".")
        ]


def _stamp(folder: Path) -> Stamp:
    """Return what changes when a file of a folder does, except its README.md."""
    files = [
        path.stat()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "README.md"
    ]
    latest_change = max((file.st_mtime_ns for file in files), default=0)
    return len(files), sum(file.st_size for file in files), latest_change


def _check_memory(what: str, size: int, device: torch.device) -> None:
    """Refuse a version that memory does not hold beside the one that answers.

    Args:
        what: name of the version, for the message.
        size: bytes of its files.
        device: where models compute.
    """
    free = (
        torch.cuda.mem_get_info(device)[0]
        if device.type == "cuda"
        else psutil.virtual_memory().available
    )
    if size > free:
        raise ConfigError(
            f"{what}: needs {size / 2**30:.1f} GiB beside the version that answers, and {free / 2**30:.1f} GiB are "
            "free; start the server again with it"
        )


def _difference_of_labels(before: Service, after: Service) -> str:
    """Warn if two versions have different vocabularies; empty if not."""
    vocabulary_before = before.about["vocabulary"]
    vocabulary_now = after.about["vocabulary"]
    if vocabulary_before == vocabulary_now:
        return ""
    labels_before = set(before.model.labels.labels)
    labels_now = set(after.model.labels.labels)
    counts = f"{len(labels_now - labels_before):,} labels more, {len(labels_before - labels_now):,} fewer"
    return f"; warning: its vocabulary is {vocabulary_now}, before {vocabulary_before}: {counts}"
