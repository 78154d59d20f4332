from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from served import Client, export, running

import xmtc


@pytest.fixture(scope="session")
def served_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("served") / "model")


@pytest.fixture(scope="session")
def model(served_folder: Path) -> xmtc.Model:
    torch.set_num_threads(1)
    return xmtc.Model.from_pretrained(served_folder, device="cpu")


@pytest.fixture(scope="module")
def client(model: xmtc.Model) -> Iterator[Client]:
    """A server as it is by default."""
    with running(model) as client:
        yield client
