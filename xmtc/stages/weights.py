"""Load the trained weights, for the stages after training."""

from torch import Tensor, nn

from xmtc.run.directory import Stage
from xmtc.stages.worker import Worker
from xmtc.training.weights import load_into


def load_best(worker: Worker) -> dict[str, Tensor]:
    """Load the weights of the best epoch into the classifier. Return what was trained, by the classifier's names."""
    objective = nn.ModuleDict({"classifier": worker.classifier})  # which the file's names begin with
    trained = load_into(objective, worker.paths.checkpoints_of(Stage.FINETUNE) / "best.safetensors")
    return {name.removeprefix("classifier."): tensor for name, tensor in trained.items()}
