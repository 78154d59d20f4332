"""Label attention over a few labels per document, at a cost that depends on their number and not on L.

Suffixes: B documents, T tokens, L labels, S shortlisted labels, D head width d.
"""

from torch import Tensor

from xmtc.models.kernels.options import Options
from xmtc.models.kernels.products import PADDED_LOGIT, gather_rows
from xmtc.models.kernels.reference import at_least_fp32, normalise_rows, reference_logits
from xmtc.models.kernels.sdpa import attend


def label_attention_shortlist(
    keys_BTD: Tensor,
    values_BTD: Tensor,
    mask_BT: Tensor,
    queries_LD: Tensor,
    weights_LD: Tensor,
    bias_L: Tensor,
    shortlist_BS: Tensor,
    options: Options,
    *,
    sparse: bool = False,
) -> Tensor:
    """Compute logits (B, S) of the labels in `shortlist_BS` (int64, -1 is padding and gets `PADDED_LOGIT`).

    Like `label_attention`. With `sparse`, the gradients of the three label tables are sparse tensors, for
    `xmtc.distributed.rowwise_optim`. The option `implementation` is ignored, because PyTorch's attention suffices for a
    shortlist.
    """
    queries_BSD = gather_rows(queries_LD, shortlist_BS, sparse=sparse)
    weights_BSD = gather_rows(weights_LD, shortlist_BS, sparse=sparse).to(keys_BTD.dtype)
    bias_BS = gather_rows(bias_L, shortlist_BS, sparse=sparse)
    if options.normalise_queries:
        queries_BSD = normalise_rows(queries_BSD, options.heads)
    tensors = (keys_BTD, values_BTD, mask_BT, queries_BSD.to(keys_BTD.dtype), weights_BSD)
    if options.normaliser == "softmax":
        logits_BS = attend(*tensors, heads=options.heads)
    else:
        logits_BS = reference_logits(*tensors, heads=options.heads, normaliser=options.normaliser)
    logits_BS = at_least_fp32(logits_BS) + bias_BS
    return logits_BS.masked_fill(shortlist_BS < 0, PADDED_LOGIT)
