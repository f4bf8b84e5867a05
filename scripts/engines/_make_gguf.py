"""Write a model of GPT-2's shape from transformers' folder as one GGUF file, which llama.cpp reads.

    PYTHON scripts/engines/_make_gguf.py FOLDER FILE

Runs in the environment of transformers, which holds the package `gguf` too. The names of the tensors are llama.cpp's:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

_OUTER = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm"}
_BLOCK = {
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


def _named(name: str) -> tuple[str, bool] | None:
    """The tensor's name in a GGUF file, and whether it is stored the other way round; None for one that is not."""
    base, kind = name.removeprefix("transformer.").rsplit(".", 1)
    if base in _OUTER:
        return f"{_OUTER[base]}.{kind}", False
    if not base.startswith("h."):
        return None
    _, number, rest = base.split(".", 2)
    # GPT-2's linear layers are stored as convolutions: input first.
    return (f"blk.{number}.{_BLOCK[rest]}.{kind}", "." in rest and kind == "weight") if rest in _BLOCK else None


def write(folder: Path, file: Path) -> None:
    """Write the model of `folder` into `file`."""
    configuration = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    weights = load_file(folder / "model.safetensors")
    writer = gguf.GGUFWriter(str(file), "gpt2")
    writer.add_name(folder.name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(configuration["n_positions"])
    writer.add_embedding_length(configuration["n_embd"])
    writer.add_feed_forward_length(4 * configuration["n_embd"])
    writer.add_block_count(configuration["n_layer"])
    writer.add_head_count(configuration["n_head"])
    writer.add_layer_norm_eps(configuration["layer_norm_epsilon"])
    for name, tensor in weights.items():
        found = _named(name)
        if found is not None:
            writer.add_tensor(found[0], np.ascontiguousarray(tensor.T if found[1] else tensor, dtype=np.float32))
    embeddings = next(tensor for name, tensor in weights.items() if name.endswith("wte.weight"))
    writer.add_tensor("output.weight", np.ascontiguousarray(embeddings, dtype=np.float32))
    words = [word for word, _ in sorted(tokenizer["model"]["vocab"].items(), key=lambda entry: entry[1])]
    special = {entry["content"] for entry in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_types([gguf.TokenType.CONTROL if word in special else gguf.TokenType.NORMAL for word in words])
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([" ".join(merge) if isinstance(merge, list) else merge for merge in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(value=False)
    writer.add_chat_template((folder / "chat_template.jinja").read_text())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
