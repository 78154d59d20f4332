"""Whether the workers of a run share its label rows."""

from xmtc.run.config import RunConfig


def shares_rows(config: RunConfig, labels: int, workers: int) -> bool:
    """Whether workers share the label rows; otherwise each has all of them.

    With shares, workers exchange keys and values of all tokens in every micro-batch; with replicas, the gradient of
    all rows once a step. A loss may need all rows, and a row-wise optimizer has only its share.

    Args:
        config: configuration of the run.
        labels: number of labels.
        workers: number of workers.
    """
    finetune, head = config.finetune, config.model.head
    if not head.scores or labels < workers:
        return False
    if finetune.loss.refuses_label_shards is not None and workers > 1:
        return False
    if (
        finetune.samples_labels
        or finetune.label_optimizer
        or config.plant.label_optimizer
    ):
        return True
    if head.row_dtype != "float32":
        return True
    few = (
        head.attends_by_label and labels <= finetune.tokens_per_micro_batch
    )  # whatever the number of workers
    return not few
