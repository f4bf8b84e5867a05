"""Make a model of GPT-2's shape with random weights, and a tokenizer to go with it; nothing is downloaded.

    PYTHON scripts/engines/_make_model.py FOLDER

Runs in the environment of transformers. Every id that the model can emit decodes to text, and no text ends it before
the asked length: a model of random weights has no reason to stop.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

# GPT-2 (124M): 12 layers, 12 heads, 768 wide, 50,257 tokens. Its 1,024 positions would not hold the longest case.
_VOCABULARY = 50_257
_POSITIONS = 4_096
_LEARNED = 8_192
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level pairs learned from the standard library's sources, filled up with words to GPT-2's vocabulary."""
    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pairs.decoder = decoders.ByteLevel()
    sources = [str(path) for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:120]]
    trainer = trainers.BpeTrainer(
        vocab_size=_LEARNED,
        special_tokens=list(_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pairs.train(sources, trainer)
    made = json.loads(pairs.to_str())
    vocabulary = made["model"]["vocab"]
    for number in range(len(vocabulary), _VOCABULARY):
        vocabulary[f"\u0120w{number:05d}"] = number
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(made)),
        bos_token=_SPECIAL[0],
        eos_token=_SPECIAL[2],
        pad_token=_SPECIAL[0],
        additional_special_tokens=[_SPECIAL[1]],
    )
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def make(folder: Path) -> None:
    """Write the model into `folder`, as transformers reads it."""
    tokenizer = _tokenizer()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=_VOCABULARY, n_positions=_POSITIONS, bos_token_id=0, eos_token_id=2, pad_token_id=0)
    )
    model.generation_config = GenerationConfig(
        bos_token_id=0, eos_token_id=2, pad_token_id=0, do_sample=False, suppress_tokens=[0, 1, 2]
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
