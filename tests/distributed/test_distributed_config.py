"""Settings of workers and strategies, and what needs no second process."""

import json
import os
import time
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from xmtc.distributed.collectives import (
    all_gather_object,
    all_reduce_sum,
    all_reduce_sum_floats,
    barrier,
    broadcast_object,
    rank_and_world_size,
)
from xmtc.distributed.config import DistributedConfig
from xmtc.distributed.state_files import plan_parts
from xmtc.distributed.strategies.config import DDPConfig, DeepSpeedConfig, SingleConfig
from xmtc.distributed.strategies.deepspeed_support import wait_for_compilers
from xmtc.distributed.strategies.settings import Demand


def validate(settings: dict[str, Any]) -> DistributedConfig:
    return TypeAdapter(DistributedConfig).validate_json(json.dumps(settings))


def test_strategy_follows_from_the_number_of_workers():
    assert DistributedConfig().chosen_strategy() == SingleConfig()
    assert DistributedConfig(workers=1).chosen_strategy() == SingleConfig()
    assert DistributedConfig(workers=2).chosen_strategy() == DDPConfig()
    zero = DeepSpeedConfig(stage=3)
    assert DistributedConfig(workers=2, strategy=zero).chosen_strategy() == zero
    assert DistributedConfig(strategy=zero).chosen_strategy() == SingleConfig()


def test_a_range_of_workers():
    elastic = validate({"workers": [1, 4]})
    assert (elastic.workers, elastic.min_workers, elastic.max_workers) == ((1, 4), 1, 4)
    assert elastic.chosen_strategy() == DDPConfig()
    assert (
        DistributedConfig(workers=3).min_workers
        == DistributedConfig(workers=3).max_workers
        == 3
    )


def test_threads():
    assert DistributedConfig().torch_threads() is None
    assert DistributedConfig(workers=2, cpus_per_worker=3).torch_threads() == 3
    assert DistributedConfig(workers=2, cpus_per_worker=0.5).torch_threads() == 1
    assert DistributedConfig(threads=2, cpus_per_worker=8).torch_threads() == 2


def test_union_is_chosen_by_kind():
    strategy = {
        "kind": "deepspeed",
        "stage": 1,
        "zero_optimization": {"overlap_comm": True},
    }
    config = validate({"workers": 4, "strategy": strategy})
    assert config.strategy == DeepSpeedConfig(
        stage=1, zero_optimization={"overlap_comm": True}
    )
    assert validate({}).resources_per_worker == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"workers": 2, "strategy": {"kind": "single"}},
            "single supports at most 1 worker, not workers=2; use ddp",
        ),
        (
            {"workers": [1, 2], "strategy": {"kind": "single"}},
            "at most 1 worker, not workers=2",
        ),
        ({"workers": [3, 2]}, "give the smaller number first"),
        ({"workers": [0, 2]}, "greater than or equal to 1"),
        ({"strategy": {"kind": "deepspeed", "stage": 4}}, "0, 1, 2 or 3"),
        ({"strategy": {"kind": "fsdp"}}, "fsdp"),
        ({"strategy": {"kind": "ddp", "stage": 2}}, "stage"),
        (
            {"strategy": {"kind": "deepspeed", "zero_optimization": {"stage": 3}}},
            "zero_optimization.*stage",
        ),
        (
            {"strategy": {"kind": "deepspeed", "zero_optimization": 2}},
            "zero_optimization",
        ),
        (
            {"strategy": {"kind": "deepspeed", "stage": 0, "offload_optimizer": "cpu"}},
            "needs stage 1, 2 or 3",
        ),
        (
            {
                "strategy": {
                    "kind": "deepspeed",
                    "stage": 2,
                    "offload_parameters": "cpu",
                }
            },
            "needs stage 3",
        ),
        ({"precision": "fp16"}, "fp32"),
        ({"workers": -1}, "greater than or equal to 0"),
        ({"timeout_s": 0}, "greater than 0"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        validate(settings)


def test_four_bit_weights_are_refused_under_stage_3_only():
    assert Demand.QUANTIZED_WEIGHTS not in DeepSpeedConfig(stage=2).refusals()
    assert (
        DeepSpeedConfig(stage=3)
        .refusals()[Demand.QUANTIZED_WEIGHTS]
        .endswith("use stage 2")
    )


def test_workers_hold_their_share_of_what_the_strategy_partitions():
    alone, zero = (
        SingleConfig().training_bytes(1000, 1),
        DeepSpeedConfig(stage=2).training_bytes(1000, 4),
    )
    assert (alone.gradients, alone.optimizer_state, alone.exchange_buffers) == (
        4000,
        8000,
        0,
    )
    assert (zero.gradients, zero.optimizer_state) == (
        1000,
        3000,
    )  # with the flat copy that AdamW updates
    assert DDPConfig().training_bytes(1000, 4).exchange_buffers == 4000
    assert DeepSpeedConfig(stage=3).weight_bytes(800, 4) == 200
    assert (
        DeepSpeedConfig(stage=3, offload_optimizer="cpu")
        .training_bytes(1000, 4)
        .optimizer_state
        == 0
    )


def test_engine_config_keeps_sums_exact_and_further_keys():
    engine = DeepSpeedConfig(
        stage=3, offload_optimizer="cpu", zero_optimization={"overlap_comm": True}
    ).engine_config("bf16")
    assert engine["zero_optimization"] == {
        "overlap_comm": True,
        "stage": 3,
        "offload_optimizer": {"device": "cpu"},
    }
    assert engine["torch_autocast"] == {
        "enabled": True,
        "dtype": "bfloat16",
        "lower_precision_safe_modules": [],
    }
    assert "bf16" not in engine


def test_without_a_group_exchanges_are_the_identity():
    value = torch.tensor([1.5, 2.5], requires_grad=True)
    summed = all_reduce_sum(value)
    assert torch.equal(summed, value)
    assert summed is not value
    assert not summed.requires_grad
    assert all_reduce_sum_floats([0.1, 2.0]) == [0.1, 2.0]
    assert broadcast_object({"a": 1}) == {"a": 1}
    assert all_gather_object("x") == ["x"]
    assert rank_and_world_size() == (0, 1)
    barrier()


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([5], [range(1)]),
        ([50], [range(1)]),
        ([4, 6, 1], [range(2), range(2, 3)]),
        ([50, 1, 50], [range(1), range(1, 2), range(2, 3)]),
    ],
)
def test_parts_hold_at_most_their_size_or_one_parameter(sizes, expected):
    assert plan_parts(sizes, 10) == expected


def test_the_lock_of_a_killed_compiler_is_forgotten(tmp_path, monkeypatch, caplog):
    lock = tmp_path / "py311_cpu" / "deepspeed_shm_comm" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    killed = time.time() - 1000
    waited = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        os.utime(lock, (killed, killed))

    monkeypatch.setattr(
        "xmtc.distributed.strategies.deepspeed_support.time.sleep", sleep
    )
    wait_for_compilers(tmp_path)
    assert waited == [1]
    assert not lock.exists()
    assert str(lock) in caplog.text


def test_a_compiler_that_ends_is_waited_for(tmp_path, monkeypatch):
    lock = tmp_path / "cpu_adam" / "lock"
    lock.parent.mkdir()
    lock.touch()
    monkeypatch.setattr(
        "xmtc.distributed.strategies.deepspeed_support.time.sleep",
        lambda _: lock.unlink(),
    )
    wait_for_compilers(tmp_path)
    wait_for_compilers(tmp_path / "not there")


@pytest.mark.parametrize(
    ("workers", "gpus", "chosen"),
    [(0, 0, "bf16"), (1, 0, "fp32"), (1, 1, "bf16")],
    ids=["a GPU that is here", "the CPU beside it", "GPUs of other machines"],
)
def test_automatic_precision_is_that_of_the_device(monkeypatch, workers, gpus, chosen):
    monkeypatch.setattr(
        "xmtc.distributed.config.default_device", lambda: torch.device("cuda")
    )
    monkeypatch.setattr("xmtc.distributed.config.native_bfloat16", lambda *, gpu: gpu)
    assert (
        DistributedConfig(
            precision="auto", workers=workers, gpus_per_worker=gpus
        ).precision
        == chosen
    )
