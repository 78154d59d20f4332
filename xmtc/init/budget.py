"""The budget of a run: how users write it, and how a configuration that `init` wrote mentions it."""

import re

from xmtc.errors import ConfigError

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([hms])\s*")
"""A number with its unit, such as 1h or 30 m."""
_SECONDS = {"h": 3600, "m": 60, "s": 1}
_ESTIMATE = "Estimate on this machine"
_MENTION = re.compile(rf"^# {_ESTIMATE}: .* of ([\d.,]+)\.$", re.MULTILINE)
"""The comment of a configuration with its budget in minutes."""


def seconds_of(budget: str) -> float:
    """Parse a budget such as `10m`, `1h`, `1h30m` or `90s` to seconds.

    Raises:
        ConfigError: the budget is invalid.
    """
    text = str(budget).strip().lower()  # Python callers may give a number
    seconds = sum(
        float(number) * _SECONDS[unit] for number, unit in _PART.findall(text)
    )
    if not seconds or _PART.sub("", text):
        raise ConfigError(
            f"budget {budget}: give hours, minutes or seconds above 0, such as 10m, 1h or 1h30m"
        )
    return seconds


def mention(estimate_s: float, budget_s: float) -> str:
    """Write the comment of a configuration that says what it is expected to take, and of what budget."""
    return f"{_ESTIMATE}: {estimate_s / 60:.1f} min of {budget_s / 60:,g}."


def mentioned_budget(configuration: str) -> float | None:
    """Read the budget in seconds from the comment of a configuration; None if it has no such comment."""
    found = _MENTION.search(configuration)
    return None if found is None else float(found[1].replace(",", "")) * 60
