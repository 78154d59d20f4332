"""What `xmtc ablate` prints: the table, what can go, and the configuration without it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import yaml
from rich.console import Console

from xmtc.config.plain import to_plain
from xmtc.fusion.ensemble import HEAD, names_of
from xmtc.run.config import RunConfig
from xmtc.stages.ablate import AblationResult, Contribution
from xmtc.track.console import terminal_table

_WIDE = 0.01
"""Width of an interval, as a fraction, beyond which dev is too small to say that a scorer adds nothing."""
_TITLES = {"ndcg@5": "nDCG@5", "macro_f1": "macro-F1", "accuracy": "accuracy"}


def print_ablation(config: RunConfig, result: AblationResult) -> None:
    """Print what each scorer adds and costs, and the configuration without those that add nothing.

    Args:
        config: configuration of the run.
        result: what was measured.
    """
    columns = [
        "scorer",
        *(f"adds {_TITLES[metric]}, points" for metric in result.metrics),
        "ms per document",
    ]
    rows = [_row(contribution, result.metrics) for contribution in result.contributions]
    caption = "on dev, with 95 % bootstrap intervals of paired differences"
    Console().print(
        terminal_table(
            columns,
            rows,
            right=columns[1:],
            title="What each scorer adds",
            caption=caption,
        )
    )
    if result.encoder_ms is not None:
        print(
            f"encoding takes {result.encoder_ms:.2f} ms of a document, once for the head and all scorers of states"
        )
    if result.together is None:
        print(
            "every scorer adds more than 0.1 points of nDCG@5 (or accuracy) or 0.3 of macro-F1, or stands in for "
            "another that would: leave none out"
        )
        return
    changes = " and ".join(
        _change(result.together, metric) for metric in result.metrics
    )
    print(
        f"without {result.together.name}, the others lose no more than 0.1 points of nDCG@5 (or accuracy) and 0.3 of "
        f"macro-F1: {changes}"
    )
    widest = max(
        interval.high - interval.low for interval in result.together.intervals.values()
    )
    if widest > _WIDE:
        print(
            f"dev is small for this question: that interval is {100 * widest:.1f} points wide, so another dev could "
            "keep what is left out here; add dev documents, or repeat the run with other seeds, before you rely on it"
        )
    print(
        f"that saves {result.together.milliseconds or 0:.2f} ms of a document. The configuration without:"
    )
    print(configuration_without(config, result.left_out))
    if HEAD in result.left_out:
        print(
            "(without a head nothing trains: leave the sections plant and finetune out, too)"
        )


def _row(contribution: Contribution, metrics: Sequence[str]) -> list[str]:
    """Write the row of a scorer."""
    cells = [contribution.name]
    for metric in metrics:
        interval = contribution.intervals[metric]
        points = 100 * contribution.adds[metric]
        cells.append(
            f"{points:+.2f} [{100 * interval.low:+.2f}, {100 * interval.high:+.2f}]"
        )
    cost = contribution.milliseconds
    return [*cells, "–" if cost is None else f"{cost:.2f}"]


def _change(together: Contribution, metric: str) -> str:
    """Say how a metric changes when scorers are left out together."""
    interval = together.intervals[metric]
    return (
        f"{_TITLES[metric]} {-100 * together.adds[metric]:+.2f} "
        f"[{-100 * interval.high:+.2f}, {-100 * interval.low:+.2f}]"
    )


def configuration_without(config: RunConfig, left_out: Sequence[str]) -> str:
    """Write the `model` section's keys that leave scorers out, as YAML."""
    scorers = []
    for name, settings in zip(
        names_of(config.model.scorers), config.model.scorers, strict=True
    ):
        if name not in left_out:
            scorers.append(_beyond_defaults(settings))
    model: dict[str, Any] = {"scorers": scorers}
    if HEAD in left_out:
        model["head"] = {"kind": "none"}
    return yaml.safe_dump(
        {"model": model}, sort_keys=False, default_flow_style=None, width=110
    ).rstrip()


def _beyond_defaults(settings: Any) -> dict[str, Any]:
    """Return the kind of a scorer and the keys that differ from its defaults."""
    plain = to_plain(settings)
    shown = {"kind": plain["kind"]}
    for field in dataclasses.fields(settings):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if default is dataclasses.MISSING or getattr(settings, field.name) != default:
            shown[field.name] = plain[field.name]
    return shown
