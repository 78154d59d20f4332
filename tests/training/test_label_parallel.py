"""Label rows in shards: two and three ranks train as one process does, whatever the combination."""

from typing import Any

import pytest
import torch
from label_cells import Cell, cells, train_all

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
