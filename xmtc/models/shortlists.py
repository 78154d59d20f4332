"""Validate a caller's shortlist of labels. Suffixes: B documents, S shortlisted labels."""

import torch
from torch import Tensor

from xmtc.errors import DataError


def check_shortlist(shortlist: Tensor, documents: int, labels: int) -> None:
    """Refuse an invalid shortlist.

    Args:
        shortlist: label ids (S,) for all documents, or (B, S) per document, padded with -1.
        documents: B.
        labels: L.

    Raises:
        DataError: ids are not integers, have the wrong shape, are out of range or repeated, or a row has none.
    """
    if shortlist.dtype != torch.int64 or shortlist.ndim not in (1, 2):
        raise DataError(
            f"a shortlist must be int64 of shape (S,) or (B, S), not {shortlist.dtype} {tuple(shortlist.shape)}"
        )
    if shortlist.ndim == 2 and len(shortlist) != documents:
        raise DataError(f"a shortlist of {len(shortlist)} rows for {documents} documents: give one row per document")
    rows_BS = torch.atleast_2d(shortlist.sort(dim=-1).values)
    lowest = -1 if shortlist.ndim == 2 else 0
    _refuse(((rows_BS < lowest) | (rows_BS >= labels)), rows_BS, f"is not in 0 … {labels - 1}")
    _refuse((rows_BS[:, 1:] == rows_BS[:, :-1]) & (rows_BS[:, 1:] >= 0), rows_BS[:, 1:], "occurs twice")
    if empty := (~(rows_BS >= 0).any(1)).nonzero().flatten().tolist():
        raise DataError(f"shortlist row {empty[0]} has no label; leave the document out, or give it one")


def _refuse(wrong_BS: Tensor, ids_BS: Tensor, why: str) -> None:
    found = wrong_BS.nonzero().tolist()
    if found:
        row, column = found[0]
        raise DataError(f"shortlist row {row}: label {int(ids_BS[row, column])} {why}")
