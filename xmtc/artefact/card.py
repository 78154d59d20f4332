"""The model card of an exported model: description, results and usage."""

from collections.abc import Mapping
from importlib.resources import files

from jinja2 import Environment
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
    template = (files("xmtc.artefact") / "assets" / "card.jinja").read_text(
        encoding="utf-8"
    )
    page = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    ).from_string(template)
    return page.render(
        info=info,
        single=info.task == "single_label",
        millions=sum(p.numel() for p in classifier.parameters()) / 1e6,
        labels=labels,
        base=base,
        contents=contents,
        metrics=metrics,
        shown=[
            key
            for key in _SHOWN[info.task]
            if any(key in values for values in metrics.values())
        ],
    )
