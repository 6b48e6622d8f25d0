"""The table: released tensor names → shapes for a config, in the released order of the parts.

Names and orientations are those of openai-community/gpt2's ``model.safetensors``, which follow
OpenAI's ``src/model.py`` (https://github.com/openai/gpt-2): a dense layer there is a convolution
of width 1, so its weight is stored [in, out].
"""

import math

from .config import GPT2Config

Shape = tuple[int, ...]

MOST_DIMS = 8  # of a stored tensor of any kind: a causal mask has 4

# The four weights of a block that are stored [in, out].
CONV1D = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")

HEAD = "lm_head.weight"

# What the weights of dense layers may be held in.
DTYPES = ("float32", "bfloat16", "float16", "int8")


def block_shapes(config: GPT2Config) -> dict[str, Shape]:
    """The tensors of one block, without the ``h.N.`` before their names."""
    width, inner = config.n_embd, config.inner
    return {
        "ln_1.weight": (width,),
        "ln_1.bias": (width,),
        "attn.c_attn.weight": (width, 3 * width),
        "attn.c_attn.bias": (3 * width,),
        "attn.c_proj.weight": (width, width),
        "attn.c_proj.bias": (width,),
        "ln_2.weight": (width,),
        "ln_2.bias": (width,),
        "mlp.c_fc.weight": (width, inner),
        "mlp.c_fc.bias": (inner,),
        "mlp.c_proj.weight": (inner, width),
        "mlp.c_proj.bias": (width,),
    }


def shapes(config: GPT2Config) -> dict[str, Shape]:
    """Every tensor of a checkpoint with this config; the head only when it is not tied to wte."""
    block = block_shapes(config)
    table: dict[str, Shape] = {
        "wte.weight": (config.vocab_size, config.n_embd),
        "wpe.weight": (config.n_positions, config.n_embd),
    }
    for layer in range(config.n_layer):
        table |= {f"h.{layer}.{name}": shape for name, shape in block.items()}
    table |= {"ln_f.weight": (config.n_embd,), "ln_f.bias": (config.n_embd,)}
    if not config.tie_word_embeddings:
        table[HEAD] = table["wte.weight"]
    return table


def count(table: dict[str, Shape], prefix: str = "") -> int:
    """How many numbers the tensors hold whose names start with `prefix`."""
    return sum(math.prod(shape) for name, shape in table.items() if name.startswith(prefix))
