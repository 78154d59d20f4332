"""Label rows in shards: two and three ranks train as one process does, whatever the combination."""

from typing import Any

import pytest
import torch
from label_cells import DRAWN, SEEDS, Cell, cells, estimate_all, train_all

from gloo import run_gloo

CELLS = cells()


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[int, dict[str, dict[str, Any]]]:
    torch.set_num_threads(1)
    runs = {1: train_all()}
    for world in (2, 3):
        runs[world] = run_gloo(train_all, world, tmp_path_factory.mktemp(f"ranks{world}"), timeout_s=240)[0]
    return runs


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_ranks_train_as_one_process(found, cell: Cell, world: int) -> None:
    one, many = found[1][str(cell)], found[world][str(cell)]
    rounded = cell.rows == "bfloat16"  # where sums in another order round to another bf16
    assert many["losses"] == pytest.approx(one["losses"], rel=2e-3 if rounded else 1e-5)
    assert many["norms"] == pytest.approx(one["norms"], rel=1e-2 if rounded else 1e-4)
    assert many["weights"].keys() == one["weights"].keys()
    for name, tensor in one["weights"].items():
        within = 2e-2 if rounded else 1e-4
        torch.testing.assert_close(many["weights"][name].float(), tensor.float(), rtol=within, atol=within)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> dict[int, dict[str, Any]]:
    torch.set_num_threads(1)
    return {1: estimate_all(), 2: run_gloo(estimate_all, 2, tmp_path_factory.mktemp("drawn"))[0]}


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("choice", DRAWN)
@pytest.mark.parametrize("head", ["label_attention", "flat"])
def test_drawn_labels_estimate_all_of_them_without_bias(drawn, head: str, choice: str, world: int) -> None:
    losses, gradients, loss, gradient_L = drawn[world][f"{head}-{choice}"]
    error = (sum(losses) / SEEDS - loss) / (torch.tensor(losses).std().item() / SEEDS**0.5)
    assert abs(error) < 3
    all_SL = torch.stack(gradients)
    spread_L = all_SL.std(0) / SEEDS**0.5
    errors_L = (all_SL.mean(0) - gradient_L).abs() / spread_L.clamp(min=1e-6)
    assert errors_L.max() < 4.5, "one of 23 labels"
    assert errors_L.square().mean().sqrt() < 2
