"""RaggedCache: a KV cache in which every row grows at its own pace, without holes.

In:  the lengths of the rows.     Out: what transformers asks of a cache, and the attention mask that fits it.
Each row writes its new keys at its own length. A chunk padded on the right writes junk behind the row's end; the mask
hides it and the next chunk overwrites it. Compare DynamicCache, which copies the whole cache at every token.
`focus` narrows the work to a few rows, so that rows whose turn is over cost nothing while others still write.
"""

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

GROWTH = 256  # tokens by which the buffers grow


class RaggedLayer(CacheLayerMixin):
    """Keys and values of one layer: (rows, heads, room, head_size), and a copy of the rows in focus."""

    def __init__(self, owner: "RaggedCache"):
        super().__init__()
        self.owner = owner
        self.focused = None

    def lazy_initialization(self, key_states, value_states):
        """Empty buffers of the right shape."""
        rows, heads, _, size = key_states.shape
        self.keys = key_states.new_zeros(rows, heads, 0, size)
        self.values = value_states.new_zeros(rows, heads, 0, value_states.shape[-1])
        self.is_initialized = True

    def update(self, key_states, value_states, *args, **kwargs):
        """Write a chunk at the owner's positions; give back all keys and values of its rows up to the longest."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values = key_states.transpose(1, 2), value_states.transpose(1, 2)
        owner = self.owner
        self.keys, self.values = _write(self.keys, self.values, keys, values, owner.rows, owner.positions, owner.reach)
        if self.focused is None:
            return self.keys[:, :, : owner.reach], self.values[:, :, : owner.reach]
        local = torch.arange(len(keys), device=keys.device)[:, None].expand_as(owner.positions)
        self.focused = _write(*self.focused, keys, values, local, owner.positions, owner.reach)
        return self.focused[0][:, :, : owner.reach], self.focused[1][:, :, : owner.reach]

    def focus(self, rows: torch.Tensor | None) -> None:
        """Copy these rows out; updates go to both. None: all rows again."""
        self.focused = None if rows is None else (self.keys[rows], self.values[rows])

    def keep(self, rows: torch.Tensor) -> None:
        """Only these rows stay."""
        self.keys, self.values = self.keys[rows], self.values[rows]

    def get_mask_sizes(self, query_length):
        """How many keys a mask must cover, from 0."""
        return self.owner.reach, 0

    def get_seq_length(self):
        """Tokens of the longest row."""
        return int(self.owner.lengths.max())

    def get_max_length(self):
        """No maximum."""
        return -1


def _write(keys, values, new_keys, new_values, rows, positions, reach):
    """Put new (rows, width, heads, size) at the positions of these rows, with more room if they need it."""
    if reach > keys.shape[2]:
        room = -(-reach // GROWTH) * GROWTH - keys.shape[2]
        keys = torch.nn.functional.pad(keys, (0, 0, 0, room))
        values = torch.nn.functional.pad(values, (0, 0, 0, room))
    keys[rows, :, positions] = new_keys
    values[rows, :, positions] = new_values
    return keys, values


class RaggedCache(Cache):
    """Set the next chunk with `advance`, then call the model with what it gave."""

    def __init__(self, layers: int, rows: int, device="cpu"):
        super().__init__(layers=[RaggedLayer(self) for _ in range(layers)])
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        """tokens each row holds   (rows,)"""
        self._focus = torch.arange(rows, device=device)

    def advance(self, width: int, chunk_lengths: torch.Tensor) -> dict[str, torch.Tensor]:
        """Make room for a chunk (rows in focus, width) of which the first chunk_lengths[row] tokens are real.

        Returns position_ids (rows, width) and attention_mask (rows, 1, width, reach) for the model's call.
        """
        device = self.lengths.device
        self.positions = self.lengths[self._focus, None] + torch.arange(width, device=device)
        self.rows = self._focus[:, None].expand_as(self.positions)
        self.reach = int(self.positions.max()) + 1
        seen = torch.arange(self.reach, device=device) <= self.positions[:, None, :, None]
        self.lengths[self._focus] += chunk_lengths
        return {"position_ids": self.positions, "attention_mask": seen}

    def focus(self, rows: torch.Tensor | None) -> None:
        """Until further notice chunks hold only these rows, in this order; None: all rows."""
        self._focus = torch.arange(len(self.lengths), device=self.lengths.device) if rows is None else rows
        for layer in self.layers:
            layer.focus(rows)

    def keep(self, rows: torch.Tensor) -> None:
        """Only these rows stay, in this order."""
        self.lengths = self.lengths[rows]
        self._focus = torch.arange(len(rows), device=rows.device)
        for layer in self.layers:
            layer.keep(rows)
