"""A head from an installed package trains, exports, scores and takes new labels as a built-in one does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tiny_runs
from xmtc.artefact.export import load_model
from xmtc.errors import CheckpointError

ROOT = Path(__file__).parents[2]
HEAD = '''
from typing import Literal

import torch
from torch import Tensor, nn

from xmtc.config.base import config
from xmtc.models.heads.base import Head
from xmtc.models.heads.config import HeadSettings


@config
class SumConfig(HeadSettings):
    """The sum over tokens."""

    kind: Literal["sum"] = "sum"
    scale: float = 0.1

    def build(self, hidden_width: int, labels: int) -> Head:
        return SumHead(self, hidden_width, labels)


class SumHead(Head):
    def __init__(self, settings: SumConfig, width: int, labels: int) -> None:
        super().__init__(settings)
        self.weights = nn.Parameter(torch.randn(labels, width) * 0.1)
        self.bias = nn.Parameter(torch.zeros(labels))

    def read(self, hidden_BTD: Tensor, mask_BT: Tensor) -> tuple[Tensor, ...]:
        return ((hidden_BTD * mask_BT[..., None]).sum(1).float() * self.settings.scale,)

    def vectors(self, read: tuple[Tensor, ...], mask_BT: Tensor) -> Tensor:
        return read[0]

    def score(self, read: tuple[Tensor, ...], mask_BT: Tensor, shortlist: Tensor | None = None) -> Tensor:
        logits_BL = read[0] @ self.weights.T + self.bias
        if shortlist is None or shortlist.ndim == 1:
            return logits_BL if shortlist is None else logits_BL[:, shortlist]
        return logits_BL.gather(1, shortlist.clamp(min=0)).masked_fill(shortlist < 0, -1e4)
'''
RUN = """
import sys

import pytest
import torch

import tiny_runs
import xmtc
from pathlib import Path
from xmtc.errors import ConfigError
from xmtc.pipeline import train_run
from xmtc.estimate.estimate import estimate
from xmtc.estimate.size import Size
from xmtc.score.batch import BlockScorer, Settings
from xmtc.artefact.export import load_model

torch.set_num_threads(1)
folder = Path(sys.argv[1])
path = folder / "tiny.yaml"
config = tiny_runs.load(path, "model.head={kind: sum, scale: 0.2}", "plant.parts=[]",
                        "finetune.mining={candidates: 2, uniform: 2}")
assert estimate(config, Size(train=60, labels=6, vocab_size=200, longest=48, tokens=20)).peak > 0
run = train_run(config)
assert tiny_runs.metrics(run)
with pytest.raises(ConfigError, match=r"plant.method: .* is sum"):
    train_run(tiny_runs.load(path, "model.head={kind: sum}", "name=planted"))
model = xmtc.Model.from_pretrained(run / "model", device="cpu")
best, = model.predict(["the fishery of fishing and fish"], top_k=6, shortlist=5)
assert len(best) == 5
with pytest.raises(ConfigError, match="model.head.kind: sum"):
    model.explain("the fishery of fishing", ["fish"])
BlockScorer(load_model(run / "model"), Settings(include=("fish", "law"), top_k=2), torch.device("cpu"), 1)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """An installed package with a head; only processes that have it on their path know it."""
    folder = tmp_path_factory.mktemp("installed")
    info = folder / "site" / "xmtc_sum-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: xmtc-sum\nVersion: 1.2\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(
        "[xmtc.heads]\nsum = xmtc_sum:SumConfig\n", encoding="utf-8"
    )
    (folder / "site" / "xmtc_sum.py").write_text(HEAD, encoding="utf-8")
    tiny_runs.write_config(folder)
    paths = [str(folder / "site"), str(ROOT), str(ROOT / "tests" / "support")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", RUN, str(folder)]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return folder


def test_it_trains_scores_and_exports_and_says_what_it_cannot_do(folder: Path) -> None:
    assert (folder / "runs" / "tiny" / "eval" / "test" / "report.html").is_file()


def test_without_the_package_loading_names_the_kind(folder: Path) -> None:
    model = folder / "runs" / "tiny" / "model"
    with pytest.raises(
        CheckpointError, match=r"model\.head: .*'sum'.*install the package"
    ):
        load_model(model)
