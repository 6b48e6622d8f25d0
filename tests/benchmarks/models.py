"""The same random GPT-2 for every program: Hub folder, CTranslate2 folders, GGUF files."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from gpt2cli.config import GPT2Config
from gpt2cli.layout import shapes
from gpt2cli.presets import PRESETS

CONFIG = PRESETS["gpt2"].config
LAYERS = ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
GGUF_LAYERS = ("attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_up", "ffn_down")

Arrays = dict[str, np.ndarray]


def build(folder: Path) -> None:
    """Write what is missing of the models into a folder."""
    hub = folder / "hub"
    if not (hub / "config.json").exists():
        write_hub(hub)
    arrays = load_file(hub / "model.safetensors")
    for kind in ("float32", "int8"):
        if not (folder / f"ct2-{kind}").exists():
            write_ctranslate2(arrays, folder / f"ct2-{kind}", kind)
    for kind in ("F32", "F16", "Q8_0"):
        if not (folder / f"{kind}.gguf").exists():
            write_gguf(CONFIG, arrays, folder / f"{kind}.gguf", kind)


def write_hub(folder: Path) -> None:
    """Random weights as training starts from, under the released names."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = np.random.default_rng(0)
    arrays = {name: _random(name, shape, numbers) for name, shape in shapes(CONFIG).items()}
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": "gelu_new",
        "layer_norm_epsilon": CONFIG.layer_norm_epsilon,
        "vocab_size": CONFIG.vocab_size,
        "n_positions": CONFIG.n_positions,
        "n_embd": CONFIG.n_embd,
        "n_layer": CONFIG.n_layer,
        "n_head": CONFIG.n_head,
    }
    (folder / "config.json").write_text(json.dumps(config))


def _random(name: str, shape: tuple[int, ...], numbers: np.random.Generator) -> np.ndarray:
    if name.endswith("bias"):
        return np.zeros(shape, np.float32)
    if ".ln_" in name or name.startswith("ln_"):
        return np.ones(shape, np.float32)
    return numbers.normal(0, 0.02, shape).astype(np.float32)


def write_ctranslate2(arrays: Arrays, folder: Path, kind: str) -> None:
    """As ctranslate2.converters writes a GPT-2, with tokens named by their ids."""
    from ctranslate2.specs import Activation, TransformerDecoderModelSpec

    spec = TransformerDecoderModelSpec.from_config(
        CONFIG.n_layer, CONFIG.n_head, pre_norm=True, activation=Activation.GELUTanh
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = decoder.projection.weight = arrays["wte.weight"]
    decoder.position_encodings.encodings = arrays["wpe.weight"]
    _norm(decoder.layer_norm, arrays, "ln_f")
    for place, layer in enumerate(decoder.layer):
        attention, ffn = layer.self_attention, layer.ffn
        _norm(attention.layer_norm, arrays, f"h.{place}.ln_1")
        _norm(ffn.layer_norm, arrays, f"h.{place}.ln_2")
        _dense(attention.linear[0], arrays, f"h.{place}.attn.c_attn")
        _dense(attention.linear[1], arrays, f"h.{place}.attn.c_proj")
        _dense(ffn.linear_0, arrays, f"h.{place}.mlp.c_fc")
        _dense(ffn.linear_1, arrays, f"h.{place}.mlp.c_proj")
    spec.register_vocabulary([str(token) for token in range(CONFIG.vocab_size)])
    for role in ("bos", "eos", "unk"):
        setattr(spec.config, f"{role}_token", str(CONFIG.vocab_size - 1))
    spec.validate()
    spec.optimize(quantization=None if kind == "float32" else kind)
    folder.mkdir()
    spec.save(str(folder))


def _norm(spec: object, arrays: Arrays, name: str) -> None:
    spec.gamma, spec.beta = arrays[f"{name}.weight"], arrays[f"{name}.bias"]


def _dense(spec: object, arrays: Arrays, name: str) -> None:
    spec.weight = np.ascontiguousarray(arrays[f"{name}.weight"].T)
    spec.bias = arrays[f"{name}.bias"]


def write_gguf(config: GPT2Config, arrays: Arrays, path: Path, kind: str) -> None:
    """As llama.cpp's converter writes a GPT-2: matrices in a type, the rest in float32."""
    import gguf

    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_block_count(config.n_layer)
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(config.inner)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("none")
    quantization = gguf.GGMLQuantizationType[kind]
    for name, array in _gguf_names(config, arrays):
        wide = name.endswith("bias") or "norm" in name or name.startswith("position")
        chosen = gguf.GGMLQuantizationType.F32 if wide else quantization
        writer.add_tensor(name, gguf.quants.quantize(array, chosen), raw_dtype=chosen)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_names(config: GPT2Config, arrays: Arrays):
    yield "token_embd.weight", arrays["wte.weight"]
    yield "output.weight", arrays["wte.weight"]
    yield "position_embd.weight", arrays["wpe.weight"]
    for part in ("weight", "bias"):
        yield f"output_norm.{part}", arrays[f"ln_f.{part}"]
        for layer in range(config.n_layer):
            for ours, theirs in zip(LAYERS, GGUF_LAYERS, strict=True):
                array = arrays[f"h.{layer}.{ours}.{part}"]
                yield f"blk.{layer}.{theirs}.{part}", np.ascontiguousarray(array.T)
