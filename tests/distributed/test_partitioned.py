"""Pretrained weights that arrive partitioned: the same model as with whole ones, before, in and after training."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from gloo import run_gloo
from tiny import VOCAB, whole_documents
from xmtc.data.collate import Batch
from xmtc.distributed.strategies.config import (
    DDPConfig,
    DeepSpeedConfig,
    StrategyConfig,
)
from xmtc.distributed.strategy import ParameterGroup
from xmtc.distributed.zero3 import is_partitioned
from xmtc.errors import ConfigError
from xmtc.models.classifier import Classifier
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.backbone_config import HuggingFaceConfig, LoraConfig
from xmtc.models.heads.config import LabelAttentionConfig

LABELS = 11
ZERO = DeepSpeedConfig(
    stage=3, zero_optimization={"stage3_param_persistence_threshold": 0}
)


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    """A causal LLaMA in two files: the classifier takes the layers without the head."""
    folder = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    LlamaForCausalLM(LlamaConfig(vocab_size=VOCAB, **sizes)).save_pretrained(
        folder, max_shard_size="30KB"
    )
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


def build(folder: Path) -> Classifier:
    torch.manual_seed(0)
    encoder = HuggingFaceConfig(
        name=str(folder), lora=LoraConfig(r=4, alpha=8, dropout=0.0), bidirectional=True
    )
    return ModelConfig(
        encoder=encoder, head=LabelAttentionConfig(width=16, heads=2), overlap=4
    ).build(VOCAB, LABELS)


def batch(rank: int) -> Batch:
    return whole_documents([12, 12], positives=[(0, 3), (1, 4)], seed=rank)


def trained(
    config: StrategyConfig, folder: Path, *, partitioned: bool
) -> tuple[list[float], int]:
    """Logits, losses and norms over two phases of training; weights of the backbone that this rank holds whole."""
    strategy = config.build("fp32", torch.device("cpu"))
    with config.loading("fp32") if partitioned else nullcontext():
        model = build(folder)
    documents, values = batch(strategy.rank), []

    def note() -> None:
        model.eval()
        with torch.no_grad():
            values.append(model(documents).sum().item())

    note()
    for trains in ("", "head."):
        parameters = [
            p
            for name, p in model.named_parameters()
            if name.startswith(trains) and _is_ours(name)
        ]
        module = strategy.prepare(model, [ParameterGroup("all", parameters, 1e-2, 0.0)])
        for _ in range(2):
            model.train()
            with strategy.micro_batch(last=True):
                loss = module(documents).square().mean() / 2
                strategy.backward(loss)
            values.extend([loss.item(), strategy.step(1.0)])
            with strategy.whole():
                note()
        values.append(
            sum(
                float(tensor.double().sum())
                for tensor in strategy.gather_trainable().values()
            )
        )
    strategy.close()
    note()
    whole = sum(
        p.numel()
        for name, p in model.named_parameters()
        if not _is_ours(name) and not is_partitioned(p)
    )
    return values, whole


def _is_ours(name: str) -> bool:
    return "lora_" in name or name.startswith("head.")


def all_ways(folder: Path) -> list[tuple[list[float], int]]:
    return [
        trained(DDPConfig(), folder, partitioned=False),
        trained(ZERO, folder, partitioned=True),
        trained(DeepSpeedConfig(stage=3), folder, partitioned=True),
    ]


def test_weights_that_arrive_partitioned_train_and_score_as_whole_ones(llama, tmp_path):
    for (reference, all_weights), *others in run_gloo(all_ways, 2, tmp_path, llama):
        assert all_weights > 10_000
        for values, whole in others:
            assert values == pytest.approx(reference, rel=1e-4)
            assert whole == 0


def lacking(folder: Path) -> str:
    ZERO.build("fp32", torch.device("cpu"))
    with ZERO.loading("fp32"), pytest.raises(ConfigError) as caught:
        build(folder)
    return str(caught.value)


def test_a_folder_that_lacks_a_weight_is_named(llama, tmp_path):
    (tmp_path / "model").mkdir()
    tensors = {}
    for path in llama.glob("*.safetensors"):
        tensors |= load_file(path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model" / "model.safetensors")
    (tmp_path / "model" / "config.json").write_text((llama / "config.json").read_text())
    (message,) = run_gloo(lacking, 1, tmp_path / "run", tmp_path / "model")
    assert "lacks 1 weights, such as layers.1.mlp.up_proj.weight" in message
