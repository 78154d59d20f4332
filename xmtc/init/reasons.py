"""The reasons for chosen values, in a few words, for the comments of the configuration."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from xmtc.init.command import Plan


def header(plan: "Plan") -> list[str]:
    """Write the lines above the configuration."""
    choice = plan.choice
    lines = [
        f"Written by xmtc init for {plan.files.place}. Every key: docs/reference/configuration.md.",
        f"  xmtc train {choice.candidate.tree['name']}.yaml",
        f"Recipe: {choice.candidate.recipe.what}.",
        f"Estimate on this machine: {choice.seconds / 60:.1f} min of {plan.budget_s / 60:,.0f}.",
    ]
    return lines + [f"Passed over: {words}." for words in choice.passed_over]


def reasons(plan: "Plan") -> dict[str, str]:
    """Map dotted keys to the reasons for their values."""
    found, roles = plan.found, plan.roles
    cut = float(np.mean(plan.lengths > plan.choice.candidate.max_length))
    why = {
        "data.source.columns.text": roles.why["text"],
        "data.source.columns.labels": f"{roles.why['labels']}; --labels",
        "data.source.columns.label_separator": "--label-separator",
        "data.source.columns.split": "says train, dev or test",
        "data.corpus": "prepared once, then reused",
        "data.max_length": f"tokens; {cut:.0%} of the documents are longer",
        "data.task": f"{roles.why['task']}; --task",
        "data.without_labels": f"{found.bare:,} documents have no label, and this task needs one",
        "data.on_bad_row": f"{found.rejected:,} rows are not documents, for example rows without text",
        "data.words": "pairs of words too: few labels, many documents each",
        "data.limit": "more training documents do not fit the budget",
        "model.encoder": f"{'trains too' if plan.config.trains_encoder else 'frozen'}; installed with xmtc",
        "model.head": _head(plan),
        "plant": _planting(plan),
        "finetune": _finetune(plan),
        "distributed.precision": "native on this processor, and faster than fp32",
        "finetune.sampled_labels": f"of {found.labels:,}: logits of a sample represent all",
    }
    for number, scorer in enumerate(plan.config.model.scorers):
        why[f"model.scorers.{number}"] = scorer.summary
    return why


def _head(plan: "Plan") -> str:
    kind = plan.choice.candidate.tree["model"]["head"]["kind"]
    if kind == "none":
        return "only the scorers, which are fitted in minutes"
    what = "one attention for each label" if kind == "label_attention" else "a layer over pooled states"
    return f"{what}, fused with the scorers"


def _planting(plan: "Plan") -> str:
    if plan.config.plants:
        return "stage 1: the attention learns where the informative words are"
    return "a random start; planting is not measured with one label per document"


def _finetune(plan: "Plan") -> str:
    if plan.config.trains_encoder:
        return "the head alone, then the whole encoder with it"
    return "the head, on hidden states from disk"
