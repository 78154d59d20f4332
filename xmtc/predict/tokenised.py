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
        self, ids_N: Sequence[NDArray[np.int32]], texts: Sequence[str], offsets_N: Sequence[NDArray[np.int64]]
    ) -> None:
        super().__init__(ids_N)
        self.texts, self.offsets_N = texts, offsets_N

    def one(self, row: int) -> Tokenised:
        """Return the text and spans of a document."""
        return Tokenised(self.texts[row], [(int(start), int(end)) for start, end in self.offsets_N[row]])


def tokenised(
    texts: Sequence[str], tokenizer: PreTrainedTokenizerFast, max_length: int, *, offsets: bool = True
) -> TokenisedTexts:
    """Tokenise texts on all cores, cut to `max_length` tokens; a text may have no tokens."""
    found = first_tokens(tokenizer.backend_tokenizer, texts, max_length, offsets=offsets)
    ids_N = [np.array(one.ids[:max_length], np.int32) for one in found]
    read = zip(found, texts, strict=True) if offsets else ()
    spans_N = [np.array(one.offsets[:max_length]) - len(category_lines(text)) for one, text in read]
    return TokenisedTexts(ids_N, texts, spans_N)
