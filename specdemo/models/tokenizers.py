"""Tokenizers of a pair: loaded from model files, compared, and refused when they differ."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from specdemo.config.errors import UserError
from specdemo.files.quiet import quiet_transformers
from specdemo.files.sources import ModelFiles

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Control tokens that end a turn or a text in the formats of common model families.
TURN_ENDS = frozenset({
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<turn|>", "<EOT>",
    "[EOT]", "<|END_OF_TURN_TOKEN|>", "<end_of_utterance>", "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>",
    "<|eot|>", "<|eom|>", "_<EOT>", "[EOS]", "<|flush|>", "<|calls|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
})  # fmt: skip
# In a tokenizer with the tokens of such a pair, <|end|> ends a message within an answer.
HARMONY = ({"<|return|>", "<|call|>"}, {"<|flush|>", "<|calls|>"})
PROBE_ANSWER = "answer-7919"


def load_tokenizer(files: ModelFiles) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model. Raises UserError for damaged files."""
    from transformers import AutoTokenizer

    try:
        with quiet_transformers():
            return AutoTokenizer.from_pretrained(
                str(files.folder), trust_remote_code=False, local_files_only=True
            )
    # The native library raises plain Exception for a file that it cannot parse.
    except Exception as error:
        raise UserError("model.tokenizer_unreadable", name=files.name) from error


def check_vocabulary(files: ModelFiles, tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
    """Raise UserError where the tokenizer has ids that the model has no row for.

    rows: of its output head. Heads are padded to different sizes even within one family (Qwen2.5: 151936 and 152064);
        rows beyond the tokenizer's ids name no token.
    """
    most = max(tokenizer.get_vocab().values(), default=-1) + 1
    if most > rows:
        raise UserError("model.too_few_rows", name=files.name, most=most, rows=rows)


def stop_ids(model: Any, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the tokens that end an answer: those that the model or its tokenizer names, known ones, and that of the chat template."""
    ids: set[int] = set()
    for value in (model.generation_config.eos_token_id, tokenizer.eos_token_id):
        ids |= set(value) if isinstance(value, list) else {value} if value is not None else set()
    added = tokenizer.get_added_vocab()
    in_parts = any(added.keys() >= pair for pair in HARMONY)
    ends = TURN_ENDS - {"<|end|>"} if in_parts else TURN_ENDS
    after = _after_answer(tokenizer)
    ends |= set(sorted(filter(after.startswith, added), key=len)[-1:])
    # Some files list them among ordinary tokens. A token that is not known gets the id of another one, or none.
    found: set[Any] = {tokenizer.convert_tokens_to_ids(token) for token in ends} - {None}
    return frozenset(ids | {one for one in found if tokenizer.convert_ids_to_tokens(one) in ends})


def _after_answer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the text that the chat template puts after an answer; "" if there is no template or it refuses."""
    roles = {"user": "Hi", "assistant": PROBE_ANSWER}
    messages = [{"role": role, "content": content} for role, content in roles.items()]
    try:
        text = str(tokenizer.apply_chat_template(messages, tokenize=False))
    except Exception:  # noqa: BLE001 - a template is a program of its author, and may be missing
        return ""
    return text.rpartition(PROBE_ANSWER)[2].lstrip()


def same_tokenizer(one: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> bool:
    """Whether both turn the same text into the same ids: equal vocabularies and equal merges."""
    return one.get_vocab() == other.get_vocab() and _merges(one) == _merges(other)


def _merges(tokenizer: PreTrainedTokenizerBase) -> list[tuple[str, ...]] | None:
    """Return merge rules in order, in either of their formats; None for a tokenizer without any."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    merges = json.loads(backend.to_str())["model"].get("merges")
    if merges is None:
        return None
    return [tuple(rule.split(" ")) if isinstance(rule, str) else tuple(rule) for rule in merges]
