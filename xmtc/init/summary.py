"""What `xmtc init` tells at the terminal: the data, what it doubts, the machine, the recipe."""

import shutil
from pathlib import Path

import psutil
import torch

from xmtc.data.overview import ONE_LABEL, warnings_of
from xmtc.data.pretrained import unknown_languages
from xmtc.data.readers.base import shown_column
from xmtc.data.readers.table_config import label_source
from xmtc.estimate.seconds import in_words
from xmtc.estimate.size import Survey
from xmtc.init.plan import Plan
from xmtc.init.roles import Roles, separation_notes
from xmtc.track.console import counted

_LONGEST_LINE = 1000
"""Characters of a line that lists files."""


def summary(plan: Plan) -> list[str]:
    """Summarise findings and choice, for the terminal."""
    return [
        *_data(plan),
        *_doubts(plan),
        *_counted(plan),
        machine(),
        *_columns(plan),
        *_recipe(plan),
    ]


def _data(plan: Plan) -> list[str]:
    """Say how many documents and labels there are, and which columns hold them."""
    found = plan.found
    roles = plan.roles
    splits = ", ".join(
        f"{split} {number:,}" for split, number in found.documents.items()
    )
    about = "" if found.exact else "about "
    texts = " + ".join(map(shown_column, roles.text))
    labels = ", ".join(map(shown_column, roles.labels))
    lines = [
        f"{plan.files.place}: {about}{counted(found.total, 'document')} ({splits}), "
        f"{found.part}{counted(found.labels, 'label')}, "
        f"{found.labels_per_document:.1f} per document",
        f"read as {plan.files.kind}; text: {texts} ({roles.why['text']}); "
        f"labels: {labels} ({roles.why['labels']})",
    ]
    label_file = label_source(plan.config.data.source)
    if label_file is not None:
        written = (
            "" if label_file.written is None else f", found by {label_file.written}"
        )
        lines.append(
            f"{label_file.path}: labels: {label_file.label}{written}; names: {label_file.name}; "
            f"parents: {label_file.parents}"
        )
    return lines


def _doubts(plan: Plan) -> list[str]:
    """List signs that something is wrong, or was decided on little evidence."""
    doubts = [f"warning: {line}" for line in label_doubts(plan.found, plan.roles)]
    languages = unknown_languages(plan.encoder, plan.found.languages)
    if languages:
        doubts.append(f"warning: {languages}")
    return [*separation_notes(plan.roles), *doubts]


def label_doubts(found: Survey, roles: Roles) -> list[str]:
    """List signs that the labels are wrong."""
    alone = roles.found.several <= (1 - ONE_LABEL) * roles.found.rows
    asked = roles.separation is not None  # `separation_notes` says it with more detail
    return warnings_of(
        found.label_counts,
        alone=alone,
        joined=alone and not asked,
        relabelled=found.relabelled if alone else 0.0,
    )


def _counted(plan: Plan) -> list[str]:
    """Count documents that are left out, or that are kept though something is missing."""
    found = plan.found
    if plan.roles.task == "single_label":
        bare = "left out"
    elif plan.roles.found.several:
        bare = "kept: no label fits them"
    else:
        bare = "kept: no label fits them; --task single_label leaves them out"
    unnamed = found.labels - found.named if plan.files.labels else 0
    first = f"; the first is {found.first_rejected}" if found.first_rejected else ""
    counts = [
        counted(number, one, many)
        for number, one, many in (
            (
                found.bare,
                f"document without labels, {bare}",
                f"documents without labels, {bare}",
            ),
            (
                found.unjudged,
                "document that nobody has judged, or whose labels were refused, left out",
                "documents that nobody has judged, or whose labels were refused, left out",
            ),
            (
                found.rejected,
                f"row that is not a document, skipped{first}",
                f"rows that are not documents, skipped{first}",
            ),
            (
                unnamed,
                "label without a name in the label file",
                "labels without a name in the label file",
            ),
            (
                found.unused_labels,
                "label of the label file without a document, left out of the model",
                "labels of the label file without a document, left out of the model",
            ),
            (
                found.repeated,
                "document that repeats an earlier text",
                "documents that repeat an earlier text",
            ),
            (
                found.added,
                "added document, for training and not for dev or test",
                "added documents, all for training and none for dev or test",
            ),
            (
                found.replaced,
                "other document of the same text as an added one, which takes its place",
                "other documents of the same text as added ones, which take their place",
            ),
            (
                found.leaked,
                "dev or test document that repeats a training text, dropped",
                "dev or test documents that repeat a training text, dropped",
            ),
        )
        if number
    ]
    return [f"{found.part}{line}" for line in counts]


def machine() -> str:
    """Describe cores, memory, disk and GPUs in words."""
    gpus = [
        torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())
    ]
    disk = shutil.disk_usage(Path.cwd()).free / 2**30
    memory = psutil.virtual_memory().available / 2**30
    return (
        f"{psutil.cpu_count()} cores, {memory:.0f} GiB of memory and {disk:.0f} GiB of disk free, "
        f"{', '.join(gpus) or 'no GPU'}"
    )


def _columns(plan: Plan) -> list[str]:
    """Name the categories, and the columns and files that nothing reads."""
    lines: list[str] = []
    roles = plan.roles
    if roles.categories:
        names = ", ".join(map(shown_column, roles.categories))
        lines.append(
            f"categories: {names}; they must be known for new texts too: take them out of the configuration otherwise"
        )
    if roles.unused:
        lines.append(f"not read: {', '.join(map(shown_column, roles.unused))}")
    if plan.files.unlabelled:
        names = ", ".join(path.name for path in plan.files.unlabelled)
        lines.append(
            f"not read, because without labels: {names}; xmtc score predicts them"
        )
    if plan.files.left_out:
        names = ", ".join(plan.files.left_out)
        lines.append(
            f"warning: left out, not named train, dev, test or labels: {names}"[
                :_LONGEST_LINE
            ]
        )
    return lines


def _recipe(plan: Plan) -> list[str]:
    """Name the recipe and what it is expected to take."""
    choice = plan.choice
    stages = ", ".join(
        f"{stage} {in_words(seconds)}" for stage, seconds in choice.stages.items()
    )
    recipe = choice.candidate.recipe
    lines = [
        f'recipe "{recipe.name}": {recipe.what}, at {choice.candidate.max_length} tokens',
        f"estimate: {in_words(choice.seconds)} of {in_words(plan.budget_s)} ({stages})",
    ]
    if not choice.fits:
        lines.append(
            "nothing fits this budget and machine: this is the cheapest recipe; give a larger budget"
        )
    return lines
