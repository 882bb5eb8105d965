"""Batch: sequences of unequal length -> right-padded batches of like lengths, so that padding costs little.

In:  lengths, or lists of token ids.     Out: index groups, padded tensors.
Leaves out: attention masks. With causal attention, padding on the right is never attended to by a real token, so
    no mask is needed and the fast causal kernels run; what is computed at padded positions is never read.
"""

from collections.abc import Sequence

import numpy as np
import torch


def buckets(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices grouped so that each group, padded to its longest, has at most max_tokens tokens; longest group first.

    A sequence longer than max_tokens is a group of its own.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    groups: list[list[int]] = []
    for i in order:
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= max_tokens:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def pad(rows: Sequence[Sequence], fill=0, dtype=torch.long) -> torch.Tensor:
    """Rows of unequal length -> (rows, longest), filled on the right."""
    out = np.full((len(rows), max(map(len, rows))), fill, dtype=np.float64 if dtype.is_floating_point else np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return torch.as_tensor(out).to(dtype)


def padding_share(lengths: Sequence[int], groups: list[list[int]]) -> float:
    """The share of computed tokens that are padding."""
    computed = sum(max(lengths[i] for i in group) * len(group) for group in groups)
    return 1 - sum(lengths) / computed
