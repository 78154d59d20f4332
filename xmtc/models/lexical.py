"""The lexical branch: a sparse linear model over tokens and n-grams of tokens, fused late with the head.

A head on a pretrained backbone knows what words mean, a linear model knows exactly which words a label's few documents
share: they err in different places, so the mean of their logits beats either (docs/benchmarks/planting.md).

Suffixes: B documents, T tokens, F terms, U terms that occur in a batch, N lengths of n-grams, L labels, S labels asked
for.
"""

import warnings
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from xmtc.errors import CheckpointError
from xmtc.models.terms import Terms


@dataclass(frozen=True)
class Lexical:
    """A fitted lexical branch.

    Attributes:
        idf_F: float32, inverse document frequency; 0 for special tokens and tokens that train lacks.
        ngrams: int64, the n-grams of two or more tokens, see `Terms`.
        starts: int32 (L + 1,), columns: int32, values: float32: the labels' weights of terms, one row after the other.
        bias_L: float32.
        calibration: float32 (2,), scale and offset that make log-odds of margins, fitted on dev.
    """

    idf_F: Tensor
    ngrams: Tensor
    starts: Tensor
    columns: Tensor
    values: Tensor
    bias_L: Tensor
    calibration: Tensor

    @property
    def labels(self) -> int:
        """L."""
        return len(self.bias_L)

    def to(self, device: torch.device) -> "Lexical":
        """The same on `device`; itself where it is there already."""
        if self.idf_F.device == device:
            return self
        return replace(self, **{f.name: getattr(self, f.name).to(device) for f in fields(self)})

    def of(self, label_ids_S: Tensor) -> "Lexical":
        """The branch of a model that is cut down to these labels, int64 (S,), in their order."""
        starts_S = self.starts[label_ids_S]
        counts_S = self.starts[label_ids_S + 1] - starts_S
        ends_S = counts_S.cumsum(0)
        before = (ends_S - counts_S).repeat_interleave(counts_S)
        taken = starts_S.repeat_interleave(counts_S) + torch.arange(len(before), device=before.device) - before
        starts = torch.cat([ends_S.new_zeros(1), ends_S]).to(self.starts.dtype)
        rows = {"columns": self.columns[taken], "values": self.values[taken], "bias_L": self.bias_L[label_ids_S]}
        return replace(self, starts=starts, **rows)

    def silent(self, label_ids_S: Tensor) -> "Lexical":
        """The branch with a logit of 0, whatever the document, for these labels, which have no weights."""
        scale, offset = self.calibration
        return replace(
            self, bias_L=self.bias_L.index_fill(0, label_ids_S.to(self.bias_L.device), float(-offset / scale))
        )

    @property
    def terms(self) -> Terms:
        """The terms that count."""
        return Terms(self.idf_F, self.ngrams)

    def logits(self, token_ids_BT: Tensor, mask_BT: Tensor, shortlist: Tensor | None = None) -> Tensor:
        """Log-odds of the labels, (B, L), float32, or (B, S) of the shortlisted; nothing else of size L is computed.

        Args:
            token_ids_BT: int64.
            mask_BT: bool, False on padding.
            shortlist: label ids int64, (S,) or (B, S); what stands in place of -1 is of no meaning.
        """
        scale, offset = self.calibration
        if shortlist is None:
            margins = self.margins(token_ids_BT, mask_BT)
        elif shortlist.ndim == 1:
            margins = self.of(shortlist).margins(token_ids_BT, mask_BT)
        else:  # a document at a time: its rows are gathered
            each = zip(shortlist.clamp(min=0), token_ids_BT.split(1), mask_BT.split(1), strict=True)
            margins = torch.cat([self.of(ids_S).margins(tokens_1T, mask_1T) for ids_S, tokens_1T, mask_1T in each])
        return margins * scale + offset

    def margins(self, token_ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """⟨w[l], x⟩ + b[l], shape (B, L), float32, where x is the document's TF-IDF."""
        terms = self.terms
        with torch.autocast(token_ids_BT.device.type, enabled=False):
            terms_U, tfidf_BU, _ = terms.tfidf(terms.found(token_ids_BT, mask_BT))
            return (self._weights(terms_U) @ tfidf_BU.T).T + self.bias_L

    def contributions(self, token_ids_BT: Tensor, mask_BT: Tensor, labels_S: Tensor) -> tuple[Tensor, Tensor]:
        """What each token adds to a logit (B, S, T), and what is there without any token (S,); they sum to the logit.

        A term's share is divided evenly between its occurrences, and an occurrence's between its tokens.

        Args:
            token_ids_BT: int64.
            mask_BT: bool, False on padding.
            labels_S: int64 label ids.
        """
        scale, offset = self.calibration
        found_BNT = self.terms.found(token_ids_BT, mask_BT)
        terms_U, tfidf_BU, column_BNT = self.terms.tfidf(found_BNT)
        column_BX = column_BNT.flatten(1)
        counts_BU = torch.zeros_like(tfidf_BU).scatter_add_(1, column_BX, torch.ones_like(column_BX).float())
        weights_SU = self.of(labels_S)._weights(terms_U).to_dense()
        each_BSU = weights_SU * (tfidf_BU / counts_BU.clamp(min=1)).unsqueeze(1)
        index_BSX = column_BX.unsqueeze(1).expand(-1, len(labels_S), -1)
        each_BSNT = each_BSU.gather(2, index_BSX).unflatten(2, column_BNT.shape[1:])
        return scale * _by_token(each_BSNT), scale * self.bias_L[labels_S] + offset

    def save(self, path: Path) -> None:
        """Write a safetensors file."""
        save_file({f.name: getattr(self, f.name).cpu().contiguous() for f in fields(self)}, path)

    @classmethod
    def load(cls, path: Path) -> "Lexical":
        """Read what `save` wrote.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        try:
            return cls(**load_file(path))
        except (OSError, SafetensorError, TypeError) as error:
            raise CheckpointError(f"{path}: not a lexical branch ({error}): copy it, or train it, again") from error

    def _weights(self, terms_U: Tensor) -> Tensor:
        """The weights of some terms, ascending, as a sparse matrix (L, U)."""
        column_F = torch.full((len(self.idf_F) + 1,), -1, dtype=torch.int32, device=terms_U.device)
        column_F[terms_U] = torch.arange(len(terms_U), dtype=torch.int32, device=terms_U.device)
        columns = column_F[self.columns]
        kept = columns >= 0
        starts = functional.pad(kept.cumsum(0, dtype=torch.int32), (1, 0))[self.starts]
        with warnings.catch_warnings():  # PyTorch calls its CSR tensors a beta; their products are the fast ones
            warnings.simplefilter("ignore", UserWarning)
            return torch.sparse_csr_tensor(
                starts, columns[kept], self.values[kept], (self.labels, len(terms_U)), check_invariants=False
            )


def _by_token(each_BSNT: Tensor) -> Tensor:
    """Shares of n-grams, (B, S, N, T) by length and last token, divided evenly between their tokens: (B, S, T)."""
    length = each_BSNT.shape[3]
    spread = [
        functional.pad(each_BSNT[:, :, n], (0, back))[..., back : back + length] / (n + 1)
        for n in range(each_BSNT.shape[2])
        for back in range(n + 1)
    ]
    return torch.stack(spread).sum(0)
