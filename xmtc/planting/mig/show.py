"""A label's top tokens as a table, so that a person can judge them."""

import numpy as np
from rich.console import Console
from rich.table import Table
from transformers import PreTrainedTokenizerBase

from xmtc.data.corpus import Corpus
from xmtc.planting.mig.ranking import TokenRanking
from xmtc.track.console import terminal_table


def show_labels(
    corpus: Corpus, ranking: TokenRanking, labels: list[str], top: int
) -> None:
    """Print the top tokens of labels. Default: the median and the most frequent label."""
    if not labels:
        order = np.argsort(np.asarray(corpus.labels.train_counts))
        labels = [
            corpus.labels.labels[int(order[len(order) // 2])],
            corpus.labels.labels[int(order[-1])],
        ]
    console = Console()
    for label in labels:
        index = corpus.labels.index(label)
        name = corpus.labels.names[index]
        title = label if name == label else f"{label} {name}"
        console.print(show(ranking, index, corpus.tokenizer(), top, title=title))


def show(
    ranking: TokenRanking,
    label_id: int,
    tokenizer: PreTrainedTokenizerBase,
    n: int = 20,
    *,
    title: str = "",
) -> Table:
    """Make a table of the `n` best tokens of a label with their score and counts; print it with rich.

    Args:
        ranking: what `rank_tokens` returned.
        label_id: row of the label.
        tokenizer: the corpus's tokenizer.
        n: tokens to show.
        title: the label and its name.
    """
    rows = [
        (
            str(rank),
            token_name(tokenizer, token.token_id),
            f"{token.score:.6f}",
            str(token.together),
            str(token.token_documents),
            str(token.label_documents),
        )
        for rank, token in enumerate(ranking.top(label_id, n), start=1)
    ]
    label = title or f"label {label_id}"
    numbers = ("#", "score", "documents with both", "with the token", "with the label")
    columns = ("#", "token", *numbers[1:])
    return terminal_table(
        columns, rows, right=numbers, title=f"{label}: {_caption(ranking, label_id)}"
    )


def _caption(ranking: TokenRanking, label_id: int) -> str:
    """Say how many tokens are ranked, or why none is."""
    ranked, documents = (
        int(ranking.counts[label_id]),
        int(ranking.label_documents_L[label_id]),
    )
    if documents == 0:
        return "no training document, so nothing is ranked"
    if ranked == 0:
        return (
            f"{documents} training documents, but no token is associated with the label"
        )
    return f"{ranked} tokens ranked on {documents} of {ranking.documents} training documents"


def token_name(tokenizer: PreTrainedTokenizerBase, token_id: int) -> str:
    """Show a token readably: its text, ▁ for a leading space; raw if it is a part of a character."""
    text = str(tokenizer.decode([token_id]))
    if not text.strip() or "\N{REPLACEMENT CHARACTER}" in text:
        return tokenizer.convert_ids_to_tokens([token_id])[0]
    return "▁" + text[1:] if text.startswith(" ") else text
