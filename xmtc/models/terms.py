"""What a linear model sees of a document: TF-IDF of its terms, which are tokens and n-grams of tokens.

Suffixes: B documents, T tokens, V token vocabulary, F terms (the V tokens, then the n-grams), U terms that occur in a
batch, N lengths of n-grams.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Terms:
    """The terms that count.

    Attributes:
        idf_F: float32, inverse document frequency; 0 for tokens that never count.
        ngrams: int64 (F - V,), ascending: an n-gram of two or more tokens is named by the term that all but its last
            token are, times V, plus its last token. So terms are exact, without text and without hashing.
    """

    idf_F: Tensor
    ngrams: Tensor

    @property
    def vocabulary(self) -> int:
        """V."""
        return len(self.idf_F) - len(self.ngrams)

    @property
    def nothing(self) -> int:
        """F: what stands where there is no term."""
        return len(self.idf_F)

    def found(self, token_ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """The terms of 1 to N tokens that end at each token, int64 (B, N, T); `nothing` where there is none."""
        counted_BT = mask_BT & (self.idf_F[token_ids_BT] > 0)
        found = [torch.where(counted_BT, token_ids_BT, self.nothing)]
        while len(self.ngrams):
            terms_BT = self._look_up(self.longer(found[-1], token_ids_BT), counted_BT)
            if not (terms_BT != self.nothing).any():
                break
            found.append(terms_BT)
        return torch.stack(found, 1)

    def longer(self, terms_BT: Tensor, token_ids_BT: Tensor) -> Tensor:
        """Names (B, T) of the terms that end a token earlier, with this token added; none at the first token."""
        before_BT = functional.pad(terms_BT, (1, 0), value=self.nothing)[:, :-1]
        return before_BT * self.vocabulary + token_ids_BT

    def tfidf(self, found_BNT: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """TF-IDF with sublinear term frequency, (1 + ln count) · idf, rows of unit length.

        Args:
            found_BNT: of `found`.

        Returns:
            The terms that occur, int64 (U,), ascending, `nothing` perhaps among them; their TF-IDF, float32 (B, U); and
            for each place its column, int64 (B, N, T).
        """
        terms_U, column_BNT = found_BNT.unique(return_inverse=True)
        counts_BU = torch.zeros(len(found_BNT), len(terms_U), device=terms_U.device)
        counts_BU.scatter_add_(1, column_BNT.flatten(1), torch.ones_like(column_BNT, dtype=torch.float32).flatten(1))
        idf_U = functional.pad(self.idf_F, (0, 1))[terms_U]
        weighted_BU = torch.where(counts_BU > 0, 1 + counts_BU.clamp(min=1).log(), 0) * idf_U
        return terms_U, functional.normalize(weighted_BU, dim=1), column_BNT

    def _look_up(self, names_BT: Tensor, counted_BT: Tensor) -> Tensor:
        at_BT = torch.searchsorted(self.ngrams, names_BT).clamp(max=len(self.ngrams) - 1)
        known_BT = counted_BT & (self.ngrams[at_BT] == names_BT)
        return torch.where(known_BT, self.vocabulary + at_BT, self.nothing)
