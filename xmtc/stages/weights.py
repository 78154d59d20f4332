"""Load the trained weights, for the stages after training."""

from torch import Tensor

from xmtc.run.stage import Stage
from xmtc.stages.worker import Worker
from xmtc.training.weights import read_weights


def load_best(worker: Worker) -> dict[str, Tensor]:
    """Load the weights of the best epoch into the classifier. Return them by the classifier's names."""
    prefix = "classifier."
    path = worker.paths.checkpoints_of(Stage.FINETUNE) / "best.safetensors"
    trained = {name.removeprefix(prefix): tensor for name, tensor in read_weights(path).items()}
    worker.classifier.load_state_dict(trained, strict=False)
    return trained
