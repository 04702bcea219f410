"""Makes the tiny chat model that the CPU engine serves: a byte-level tokenizer and a Llama with random weights.

Run with the engine's own Python, which has torch and transformers: `python make_model.py FOLDER`. The text it writes
means nothing; its lengths, token ids and broken UTF-8 are as real as a large model's.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 1024
HIDDEN = 128
LAYERS = 2
CONTEXT_TOKENS = 4096
SEED = 20
PAD, BEGIN, TURN, END = "<pad>", "<s>", "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content or "" }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""


def make_tokenizer(corpus: Path) -> PreTrainedTokenizerFast:
    """Byte-level BPE trained on the corpus; every byte is a token, so that no prompt is out of vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, BEGIN, TURN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(corpus)], trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise SystemExit(f"{corpus}: gave {tokenizer.get_vocab_size()} tokens, {VOCABULARY} wanted; it needs more text")
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END, pad_token=PAD, additional_special_tokens=[TURN]
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def make_weights(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """The same weights on every machine that has the same torch."""
    torch.manual_seed(SEED)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=HIDDEN,
            intermediate_size=3 * HIDDEN,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=CONTEXT_TOKENS,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            tie_word_embeddings=False,
        )
    ).to(torch.bfloat16)
    # SGLang takes its sampling defaults from here: plain sampling, which a request may override.
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model


def main(folder: Path) -> None:
    tokenizer = make_tokenizer(Path(__file__).with_name("corpus.txt"))
    model = make_weights(tokenizer)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    print(f"model: {sum(weights.numel() for weights in model.parameters()) / 1e6:.2f} M random weights in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
