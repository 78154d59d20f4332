"""Texts in memory, tokenised.

Suffixes: N texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from xmtc.data.documents import UnlabelledDocuments
from xmtc.data.fields import category_lines
from xmtc.data.windows import first_tokens


@dataclass(frozen=True)
class Tokenised:
    """A document's text, and the character spans of the content tokens that the model reads.

    Spans of tokens in values of categories, which come before the text, are negative.
    """

    text: str
    offsets: Sequence[tuple[int, int]]


class TokenisedTexts(UnlabelledDocuments):
    """Texts and their tokens.

    Attributes:
        texts: the N texts; empty if neither evidence nor scorers read them.
        offsets_N: character spans (T, 2) of the tokens of each text; empty if evidence does not read them.
    """

    def __init__(
        self,
        ids_N: Sequence[NDArray[np.int32]],
        texts: Sequence[str],
        offsets_N: Sequence[NDArray[np.int64]],
    ) -> None:
        super().__init__(ids_N)
        self.texts = texts
        self.offsets_N = offsets_N

    def one(self, row: int) -> Tokenised:
        """Return the text and spans of a document."""
        offsets = [(int(start), int(end)) for start, end in self.offsets_N[row]]
        return Tokenised(self.texts[row], offsets)


def tokenised(
    texts: Sequence[str],
    tokenizer: PreTrainedTokenizerFast,
    max_length: int,
    *,
    offsets: bool = True,
) -> TokenisedTexts:
    """Tokenise texts on all cores, cut to `max_length` tokens; a text may have no tokens."""
    encodings = first_tokens(
        tokenizer.backend_tokenizer, texts, max_length, offsets=offsets
    )
    ids_N = [np.array(encoding.ids[:max_length], np.int32) for encoding in encodings]
    spans_N = []
    if offsets:
        for encoding, text in zip(encodings, texts, strict=True):
            before_text = len(
                category_lines(text)
            )  # the tokenizer reads the values of categories first
            spans_N.append(np.array(encoding.offsets[:max_length]) - before_text)
    return TokenisedTexts(ids_N, texts, spans_N)
