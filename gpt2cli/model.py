"""GPT-2: embeddings, pre-norm blocks, a final norm, and the unembedding through wte.

Modules carry the released names, so a checkpoint's tensors are the state dict. The network is
that of "Language Models are Unsupervised Multitask Learners" (Radford et al. 2019, section 2.3)
and of OpenAI's src/model.py. B is rows, T new tokens a row, S keys a row, C is n_embd, H n_head,
D = C / H, V vocab_size.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from .config import GPT2Config


def quick_gelu(x: Tensor) -> Tensor:
    """The sigmoid form of GELU (Hendrycks & Gimpel 2016, section 2)."""
    return x * torch.sigmoid(1.702 * x)


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh form of GELU (Hendrycks & Gimpel 2016, section 2), the one of GPT-2."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_new": gelu_tanh,
    "gelu_fast": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "gelu": F.gelu,
    "quick_gelu": quick_gelu,
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,
    "tanh": torch.tanh,
}


def _normal(*shape: int) -> Tensor:
    """Weights as at the start of training; on the meta device, where it is slow, none are drawn."""
    weight = torch.empty(shape)
    return weight if weight.is_meta else nn.init.normal_(weight, std=0.02)


def _embedding(rows: int, width: int) -> nn.Embedding:
    return nn.Embedding(rows, width, _weight=_normal(rows, width))


class Conv1D(nn.Module):
    """A dense layer whose weight is stored [in, out], as a convolution of width 1 was."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(_normal(n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] → [..., out]."""
        rows = torch.addmm(self.bias, x.flatten(0, -2), self.weight)
        return rows.view(*x.shape[:-1], -1)


QUERIES = 4  # attention runs on whole multiples of so many queries


def padded_keys(n_keys: int) -> int:
    """`n_keys`, rounded up so that a query's sums run in one order however many keys follow.

    torch's CPU kernel goes through the keys 512 at a time, and the product of a rest with its
    values is summed in parts of 192 from 384 on, as a whole up to 192, in halves between.
    """
    whole, rest = divmod(n_keys, 512)
    if rest > 192:
        rest = max(rest, 384)
    return 512 * whole + -(-rest // 64) * 64


class KVCache:
    """The keys and values of the tokens a batch of rows has seen, and how many that is.

    `keys` and `values` are [n_layer, B, H, capacity, D]; `lengths` is int64 [B] on the CPU and is
    the only state: positions and masks come from it, and rewinding, ending or replacing a row is
    setting its length. What lies past a row's length is never attended to.
    """

    def __init__(self, keys: Tensor, values: Tensor, lengths: Tensor) -> None:
        self.keys = keys
        self.values = values
        self.lengths = lengths

    @classmethod
    def empty(
        cls,
        config: GPT2Config,
        rows: int,
        capacity: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> "KVCache":
        """A cache of `rows` empty rows that hold at least `capacity` tokens each."""
        shape = (config.n_layer, rows, config.n_head, padded_keys(capacity), config.head_dim)
        keys = torch.zeros(shape, device=device, dtype=dtype)
        return cls(keys, torch.zeros_like(keys), torch.zeros(rows, dtype=torch.int64))

    @classmethod
    def passing(
        cls,
        config: GPT2Config,
        rows: int,
        n_tokens: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> "KVCache":
        """A cache for one pass over `n_tokens` and no more: each layer writes over the last."""
        one = cls.empty(replace(config, n_layer=1), rows, n_tokens, device, dtype)
        keys, values = (x.expand(config.n_layer, *x.shape[1:]) for x in (one.keys, one.values))
        return cls(keys, values, one.lengths)

    @property
    def capacity(self) -> int:
        """How many tokens a row can hold."""
        return self.keys.shape[3]

    def rows(self, start: int, stop: int) -> "KVCache":
        """The rows from `start` to before `stop`, on the same memory."""
        part = slice(start, stop)
        return KVCache(self.keys[:, part], self.values[:, part], self.lengths[part])

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Make row `target` the first `length` tokens of row `source`."""
        for stored in (self.keys, self.values):
            stored[:, target, :, :length] = stored[:, source, :, :length]
        self.lengths[target] = length

    def window(self, n_tokens: int) -> "Window":
        """The place of the next `n_tokens` tokens of every row; ValueError when they do not fit."""
        ends = self.lengths + n_tokens
        longest = int(ends.max())
        if longest > self.capacity:
            raise ValueError(f"{longest} tokens do not fit into a cache of {self.capacity}")
        return Window(self, n_tokens, padded_keys(longest))


class Window:
    """One pass over T new tokens of every row: their positions, and which keys each may see.

    `positions` is [B, T]. `mask` is [B, 1, Q, S], 0 where a query sees a key and −inf elsewhere,
    with Q and S the queries and the longest row's keys after padding: a query's result is then
    bit for bit the same whatever is computed beside it.
    """

    def __init__(self, cache: KVCache, n_tokens: int, n_keys: int) -> None:
        device = cache.keys.device
        self.cache = cache
        self.n_keys = n_keys
        self.padding = -n_tokens % QUERIES
        # lower-right: query i of a row that holds n tokens is its position n + i
        queries = torch.arange(n_tokens + self.padding, device=device)
        places = cache.lengths.to(device)[:, None] + queries
        hidden = torch.arange(n_keys, device=device) > places[:, None, :, None]
        self.mask = torch.zeros(hidden.shape, device=device).masked_fill_(hidden, -torch.inf)
        self.positions = places[:, :n_tokens]
        first = int(cache.lengths[0])
        level = bool((cache.lengths == first).all())
        self.level = slice(first, first + n_tokens) if level else None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attend from one block's new tokens, [B, H, T, D] each, to all of their rows' tokens."""
        keys, values = self.extend(layer, key, value)
        padded = F.pad(query, (0, 0, 0, self.padding))
        heads = F.scaled_dot_product_attention(
            padded, keys, values, attn_mask=self.mask, scale=scale
        )
        return heads[:, :, : query.shape[2]]

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store [B, H, T, D] of one block's new tokens; give [B, H, S, D] of all its tokens."""
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        if self.level is not None:
            keys[:, :, self.level], values[:, :, self.level] = key, value
        else:
            rows = torch.arange(len(keys), device=keys.device)[:, None]
            keys[rows, :, self.positions] = key.transpose(1, 2)
            values[rows, :, self.positions] = value.transpose(1, 2)
        return keys[:, :, : self.n_keys], values[:, :, : self.n_keys]


class CausalSelfAttention(nn.Module):
    """Every position attends to itself and those before it, in H heads."""

    def __init__(self, config: GPT2Config, layer: int = 0) -> None:
        super().__init__()
        self.c_attn = Conv1D(config.n_embd, 3 * config.n_embd)
        self.c_proj = Conv1D(config.n_embd, config.n_embd)
        self.n_head = config.n_head
        self.layer = layer
        self.scale = config.attention_scale(layer)

    def forward(self, x: Tensor, window: Window | None = None) -> Tensor:
        """[B, T, C] → [B, T, C]; with a window, over the cached tokens before them as well."""
        # [B, T, 3C] → three of [B, H, T, D]
        query, key, value = (
            self.c_attn(x).unflatten(-1, (3, self.n_head, -1)).permute(2, 0, 3, 1, 4)
        )
        if window is None:
            heads = F.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=self.scale
            )
        else:
            heads = window.attend(self.layer, query, key, value, self.scale)
        out: Tensor = self.c_proj(heads.transpose(1, 2).flatten(-2))
        return out


class MLP(nn.Module):
    """Two dense layers with an activation between them, a position at a time."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.c_fc = Conv1D(config.n_embd, config.inner)
        self.c_proj = Conv1D(config.inner, config.n_embd)
        self.activation = ACTIVATIONS[config.activation_function]

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] → [B, T, C]."""
        out: Tensor = self.c_proj(self.activation(self.c_fc(x)))
        return out


class Block(nn.Module):
    """One pre-norm transformer block; `layer` counts from 0."""

    def __init__(self, config: GPT2Config, layer: int = 0) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.attn = CausalSelfAttention(config, layer)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, window: Window | None = None) -> Tensor:
        """[B, T, C] → [B, T, C]."""
        x = x + self.attn(self.ln_1(x), window)
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class GPT2(nn.Module):
    """Token ids in, logits out."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.config = config
        self.row_exact = False  # whether a position's logits are the same bits in any batch
        self.wte = _embedding(config.vocab_size, config.n_embd)
        self.wpe = _embedding(config.n_positions, config.n_embd)
        self.h = nn.ModuleList(Block(config, layer) for layer in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.lm_head: nn.Module | None = None  # the unembedding is wte's, unless it is untied
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, input_ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """Ids [B, T] → logits [B, T, V]; see `hidden` for the cache."""
        return self.unembed(self.hidden(input_ids, cache))

    def hidden(
        self, input_ids: Tensor, cache: KVCache | None = None, counts: Sequence[int] | None = None
    ) -> Tensor:
        """Ids [B, T] → the hidden states after ln_f, [B, T, C].

        With a cache the tokens follow those it holds, and its lengths advance once: by T, or row
        by row by `counts` when rows are padded on their right. Raises ValueError when a row would
        pass n_positions or the cache's capacity.
        """
        rows, n_tokens = input_ids.shape
        if cache is None:
            cache = KVCache.passing(
                self.config, rows, n_tokens, input_ids.device, self.wte.weight.dtype
            )
        window = cache.window(n_tokens)
        steps = torch.tensor(n_tokens if counts is None else counts)
        longest = (cache.lengths + steps).max()
        if longest > self.config.n_positions:
            raise ValueError(
                f"{longest} tokens are more than n_positions {self.wpe.num_embeddings}"
            )
        # padding may lie past the last position; what it computes is never read
        positions = window.positions.clamp(max=self.config.n_positions - 1)
        x = self.wte(input_ids) + self.wpe(positions)
        for block in self.h:
            x = block(x, window)
        cache.lengths += steps
        out: Tensor = self.ln_f(x)
        return out

    def unembed(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., C] → logits [..., V]."""
        if self.lm_head is None:
            return F.linear(hidden, self.wte.weight)
        logits: Tensor = self.lm_head(hidden)
        return logits
