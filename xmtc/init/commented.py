"""Write YAML with the reason for each value in a comment."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from xmtc.data.pretrained import MULTILINGUAL
from xmtc.init.budget import mention
from xmtc.run.encoder_use import encoder_use
from xmtc.track.console import counted

if TYPE_CHECKING:
    from pathlib import Path

    from xmtc.init.plan import Plan

_WIDTH = 58  # comments begin here, where lines are not longer


def commented_yaml(
    tree: Mapping[str, Any], why: Mapping[str, str], header: list[str]
) -> str:
    """Format the configuration as text.

    Args:
        tree: plain data.
        why: reasons by dotted key; an item of a list is named by its index.
        header: lines of the comment at the top.
    """
    lines = [f"# {line}".rstrip() for line in header]
    for key, value in tree.items():
        lines += [
            "" if isinstance(value, Mapping) else None,
            *_lines(key, value, why, (), 0),
        ]
    return "\n".join(line for line in lines if line is not None) + "\n"


def _lines(
    key: str, value: Any, why: Mapping[str, str], above: tuple[str, ...], depth: int
) -> list[str]:
    """Format a key and its value: nested sections as blocks, everything else in one line."""
    path, pad = (*above, key), "  " * depth
    reason = why.get(".".join(path))
    if (
        isinstance(value, Mapping)
        and depth < 3
        and not (set(value) == {"kind"} or _is_small(value, path, why))
    ):
        below = [
            line
            for name, inner in value.items()
            for line in _lines(name, inner, why, path, depth + 1)
        ]
        return [_with(f"{pad}{key}:", reason), *below]
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        items = [
            _with(f"{pad}  - {_flow(item)}", why.get(".".join((*path, str(number)))))
            for number, item in enumerate(value)
        ]
        return [_with(f"{pad}{key}:", reason), *items]
    return [_with(f"{pad}{key}: {_flow(value)}", reason)]


def _is_small(
    value: Mapping[str, Any], path: tuple[str, ...], why: Mapping[str, str]
) -> bool:
    """Whether a section fits in one line, because nothing in it has a reason."""
    below = ".".join(path) + "."
    flat = not any(isinstance(inner, Mapping | list) for inner in value.values())
    return len(path) > 1 and flat and not any(key.startswith(below) for key in why)


def _with(line: str, reason: str | None) -> str:
    return (
        line
        if reason is None
        else f"{line:<{_WIDTH}}  # {' '.join(reason.splitlines())}"
    )


def _flow(value: Any) -> str:
    """Format a value in one line; letters are escaped only if one of them ends a line, such as U+0085."""
    shown = len(json.dumps(value, ensure_ascii=False).splitlines()) == 1
    text = yaml.safe_dump(
        value,
        default_flow_style=True,
        allow_unicode=shown,
        width=10_000,
        sort_keys=False,
    )
    return text.removesuffix("\n").removesuffix("...").rstrip()


def header(plan: "Plan", output: "Path") -> list[str]:
    """Write the lines above the configuration."""
    choice = plan.choice
    lines = [
        f"Written by xmtc init for {plan.files.place}. Every key: docs/reference/configuration.md.",
        f"  xmtc train {output}",
        f"Recipe: {choice.candidate.recipe.what}.",
        mention(choice.seconds, plan.budget_s),
    ]
    return lines + [f"Passed over: {words}." for words in choice.passed_over]


def reasons(plan: "Plan") -> dict[str, str]:
    """Map dotted keys to the reasons for their values."""
    found, roles = plan.found, plan.roles
    cut = float(np.mean(plan.lengths > plan.choice.candidate.max_length))
    training = "trains too" if encoder_use(plan.config).trains else "frozen"
    words = plan.config.data.words
    said = ["pairs of words too"] * (words.ngrams > 1) + [
        "inflected words share a term"
    ] * (words.stems > 0)
    languages = "many languages" if plan.encoder == MULTILINGUAL else "English"
    rejected = counted(
        found.rejected, "row that is not a document", "rows that are not documents"
    )
    why = {
        "data.source.columns.text": roles.why["text"],
        "data.source.columns.categories": "few values; take out what is not known before labels are",
        "data.source.columns.labels": f"{roles.why['labels']}; --labels",
        "data.source.columns.label_separator": "--label-separator",
        "data.source.columns.split": "says train, dev or test",
        "data.corpus": "prepared once, then reused",
        "data.max_length": f"tokens; {cut:.0%} of the documents are longer",
        "data.task": f"{roles.why['task']}; --task",
        "data.without_labels": f"{found.part}{counted(found.bare, 'document')} without a label, which this task needs",
        "data.on_bad_row": found.part + rejected,
        "data.words": "; ".join(said),
        "data.limit": "more training documents do not fit the budget",
        "model.encoder": f"{training}; {languages}; its package is here",
        "model.overlap": "windows are as long as the spans that train",
        "distributed.precision": "bf16 where the machine has instructions for it, else fp32",
        "evaluate.fit_on_dev": "the scorers, after dev has fused them: test and the model have every document",
        "finetune.crop": "tokens: training reads random spans, predictions whole documents",
        "finetune.sampled_labels": f"of {found.labels:,}: logits of a sample represent all",
    }
    why |= plan.choice.candidate.recipe.why
    for number, scorer in enumerate(plan.config.model.scorers):
        why[f"model.scorers.{number}"] = scorer.summary
    return why
