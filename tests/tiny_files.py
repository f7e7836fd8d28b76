"""Folders of tiny models, made on the spot: a byte-level tokenizer and a random two-layer Llama."""

from pathlib import Path

WORDS = "the cat sat on the mat and the dog sat on the log while a bird sang in the tall green tree"


def make_tiny_tokenizer(text: str = WORDS, size: int = 300):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, special_tokens=special
    )
    tokenizer.train_from_iterator([text] * 4, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|im_start|>", eos_token="<|im_end|>"
    )


def make_tiny_model(
    folder: Path, hidden: int = 64, intermediate: int = 128, *, tokenizer=None, kind: str = "llama",
    seed: int = 0, **options,
) -> Path:  # fmt: skip
    """A random model, by default a two-layer Llama, with its tokenizer. Biases of queries, keys and values are random."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(seed)
    tokenizer = tokenizer or make_tiny_tokenizer()
    sizes = {
        "vocab_size": len(tokenizer), "hidden_size": hidden, "intermediate_size": intermediate,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True,
    }  # fmt: skip
    sizes |= {"head_dim": hidden // 4} if kind == "llama" else {}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes | options))
    for name, parameter in model.named_parameters():
        if name.endswith("_proj.bias"):
            torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
