"""Label rows in shards: two and three ranks train as one process does, whatever the combination."""

from typing import Any

import pytest
import torch
from label_cells import DRAWN, RESUMED, SEEDS, Cell, cells, train_all

from gloo import run_gloo

CELLS = cells()


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[int, dict[str, dict[str, Any]]]:
    torch.set_num_threads(1)
    saved = tmp_path_factory.mktemp("saved")
    runs = {
        2: run_gloo(
            train_all, 2, tmp_path_factory.mktemp("ranks2"), saved, timeout_s=240
        )[0]
    }
    runs[3] = run_gloo(
        train_all, 3, tmp_path_factory.mktemp("ranks3"), saved, timeout_s=240
    )[0]
    return runs | {1: train_all(saved)}


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_ranks_train_as_one_process(found, cell: Cell, world: int) -> None:
    one, many = found[1][str(cell)], found[world][str(cell)]
    rounded = cell.rounded  # sums in another order round to another bf16
    assert many["losses"] == pytest.approx(one["losses"], rel=2e-3 if rounded else 1e-5)
    assert many["norms"] == pytest.approx(one["norms"], rel=1e-2 if rounded else 1e-4)
    assert many["weights"].keys() == one["weights"].keys()
    for name, tensor in one["weights"].items():
        within = 2e-2 if rounded else 1e-4
        if (
            cell.precision == "bf16"
        ):  # Adam moves a weight by its rate in either direction where gradients are rounding
            within = 5e-2
        torch.testing.assert_close(
            many["weights"][name].float(), tensor.float(), rtol=within, atol=within
        )


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_plant_what_one_process_plants(found, world: int) -> None:
    for name, tensor in found[1]["planted"].items():
        apart = (found[world]["planted"][name] - tensor).norm()
        assert apart <= 1e-5 * tensor.norm(), name
    assert found[1]["planted"]["flat bias"].unique().numel() > 1


@pytest.mark.parametrize("cell", RESUMED, ids=str)
def test_a_checkpoint_of_two_ranks_resumes_on_one_and_on_three(
    found, cell: Cell
) -> None:
    one, three = (found[world][f"resumed-{cell}"] for world in (1, 3))
    assert three["losses"] == pytest.approx(one["losses"], rel=1e-5)
    before = found[2][f"resumed-{cell}"]["losses"]
    assert one["losses"][0] < before[0], "not from the start"
    for name, tensor in one["weights"].items():
        torch.testing.assert_close(three["weights"][name], tensor, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("choice", DRAWN)
@pytest.mark.parametrize("head", ["label_attention", "flat"])
def test_drawn_labels_estimate_all_of_them_without_bias(
    found, head: str, choice: str, world: int
) -> None:
    losses, all_SL, loss, gradient_L = found[world]["drawn"][f"{head}-{choice}"]
    error = (sum(losses) / SEEDS - loss) / (
        torch.tensor(losses).std().item() / SEEDS**0.5
    )
    assert abs(error) < 3
    spread_L = all_SL.std(0) / SEEDS**0.5
    errors_L = (all_SL.mean(0) - gradient_L).abs() / spread_L.clamp(min=1e-6)
    assert errors_L.max() < 4.5, "one of 23 labels"
    assert errors_L.square().mean().sqrt() < 2
