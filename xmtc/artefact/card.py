"""The model card of an exported model: description, results and usage."""

from collections.abc import Mapping, Sequence

from torch import nn

from xmtc.artefact.info import ModelInfo

_SHOWN = {
    "multi_label": ("p@1", "p@5", "ndcg@5", "psp@5", "micro_f1", "macro_f1", "map"),
    "single_label": ("accuracy", "macro_f1", "macro_recall"),
}


def model_card(
    info: ModelInfo,
    classifier: nn.Module,
    labels: int,
    *,
    base: str | None,
    contents: str,
    metrics: Mapping[str, Mapping[str, float]],
) -> str:
    """Write the card as Markdown, with the front matter that model hubs read.

    Args:
        info: description of the model.
        classifier: classifier whose parameters are counted.
        labels: L.
        base: name of the pretrained backbone; None if there is none.
        contents: the weights in the folder, in words.
        metrics: values by split and metric, as fractions.
    """
    millions = sum(p.numel() for p in classifier.parameters()) / 1e6
    tags = "[extreme-multi-label, xmtc]" if info.task == "multi_label" else "[xmtc]"
    front = ["---", "library_name: xmtc", "pipeline_tag: text-classification", f"tags: {tags}"]
    if base is not None:
        front.append(f'base_model: "{base}"')
    task = "any number of labels" if info.task == "multi_label" else "exactly one label"
    counts = "`thresholds.json` holds the decision which labels are predicted, tuned on dev; `xmtc decide` changes it"
    call = 'model.predict(["a text"], top_k=5)'
    if info.task == "single_label":
        counts = "the best label is predicted, and `thresholds.json` is not used"
        call = 'model.predict(["a text"])'
    lines = [
        *front,
        "---",
        f"# {info.name}",
        "",
        f"Gives a text {task} out of {labels:,}. {millions:.1f} million parameters; backbone: {base or 'none'}; "
        f"texts are read up to {info.max_length:,} tokens. This folder holds {contents}.",
        "",
        *_table(metrics, _SHOWN[info.task]),
        "## Use",
        "",
        "```python",
        "import xmtc",
        "",
        'model = xmtc.Model.from_pretrained("path/to/this/folder")',
        call,
        "```",
        "",
        f"Scores are probabilities; {counts}.",
        "The model only knows the labels in `labels.arrow`. Expect weak results for labels with a low `train_count`.",
        "",
    ]
    return "\n".join(lines)


def _table(metrics: Mapping[str, Mapping[str, float]], wanted: Sequence[str]) -> list[str]:
    shown = [key for key in wanted if any(key in values for values in metrics.values())]
    if not shown:
        return []
    rows = [
        f"| {split} | " + " | ".join(_percent(values.get(key)) for key in shown) + " |"
        for split, values in metrics.items()
    ]
    return ["## Results (%)", "", "| split | " + " | ".join(shown) + " |", "|---" * (len(shown) + 1) + "|", *rows, ""]


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"
