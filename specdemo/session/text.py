"""Reads prompts from files, encodes conversations as prompt ids, and decodes token ids to the text that a viewer sees."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from specdemo.config.errors import Phrase, UserError, first_line
from specdemo.config.strings import ASSETS, Json, JsonView
from specdemo.trace.events import LONE_SURROGATE, Choice, Drafted, Event, Node, Place, Verified
from specdemo.trace.metrics import same_prefix

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


EXAMPLES = ASSETS / "examples.json"


@dataclass(frozen=True, slots=True)
class Item:
    """The user's messages of one conversation."""

    name: str
    task: str
    turns: tuple[str, ...]


def read_prompts(path: Path) -> list[Item]:
    """Return the items of a file in their order. Raises UserError for a file without prompts.

    JSON lines have `prompt` or `turns`, and may have `id` and `task`; a .json file has such rows as `examples`. Of any
        other text each line is a prompt.
    """
    try:
        items = [_item(row, number) for number, row in enumerate(prompt_rows(path))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError("cli.prompts_unread", path=path, error=error) from error
    if not items:
        raise UserError("cli.no_prompts", path=path)
    return items


def prompt_rows(path: Path) -> list[Json]:
    """Return the rows of a file of prompts, see `read_prompts`. Raises the errors of reading and of JSON."""
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix == ".json":
        return list(json.loads(text)["examples"])
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if path.suffix == ".jsonl" or text.lstrip().startswith("{"):
        return [json.loads(line) for line in lines]
    return [{"prompt": line} for line in lines]


def _item(row: JsonView, number: int) -> Item:
    turns = row.get("turns") or [row.get("prompt")]
    if not all(isinstance(turn, str) for turn in turns):
        raise ValueError(f"line {number + 1} has no prompt")
    return Item(str(row.get("id", number)), str(row.get("task", "all")), tuple(turns))


def read_suite(path: Path | None, limit: int | None = None) -> list[Item]:
    """Return the items of a file, at most `limit` a task, tasks in turn; by default those of the page."""
    by_task: dict[str, list[Item]] = defaultdict(list)
    for item in read_prompts(path or EXAMPLES):
        by_task[item.task].append(item)
    chosen = [group[:limit] for group in by_task.values()]
    longest = max(map(len, chosen))
    return [group[number] for number in range(longest) for group in chosen if number < len(group)]


MAX_CHARACTERS = 1_000_000
FEWEST_BEFORE, MOST_BEFORE = 4, 16  # ids that are decoded with the next one
LONGEST_CHARACTER = 8  # tokens; UTF-8 has four bytes at most
UNDECODED = "\N{REPLACEMENT CHARACTER}"  # the text of bytes that are no character
TOKEN_CHARACTERS = 16  # upper bound of the mean characters per token; longer texts are not encoded
TEMPLATE_WORDS = 200  # characters of a template's own message
LEAST_ANSWER = 16  # tokens that must fit behind a prompt

Message: TypeAlias = dict[str, str]
"""`role` and `content` of a message."""


def with_answer(messages: Sequence[Message], prompt: str, answer: str) -> list[Message]:
    return [
        *messages,
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": answer},
    ]


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    context: int,
    *,
    system: str = "",
    earlier: Sequence[Message] = (),
    most: int = 0,
) -> list[int]:
    """Encode a prompt in the model's chat template. Control tokens that a user typed stay text.

    context: longest text of the target in tokens; most: limit of the server in tokens, 0 for none
    earlier: the messages before the prompt
    Raises UserError for a prompt that is empty, too long or not valid text, and for a template that refuses the messages.
    """
    if not prompt.strip():
        raise UserError("prompt.empty")
    first = [{"role": "system", "content": system}] if system.strip() else []
    messages = [*first, *earlier, {"role": "user", "content": prompt}]
    room, reader = context - LEAST_ANSWER, Phrase("prompt.target")
    if 0 < most < room:
        room, reader = most, Phrase("prompt.page")
    if any(LONE_SURROGATE.search(message["content"]) for message in messages):
        raise UserError("prompt.half_character")
    length = sum(len(message["content"]) for message in messages)
    if length > min(MAX_CHARACTERS, TOKEN_CHARACTERS * room):
        limit = Phrase("prompt.about", tokens=f"{room:,}", characters=f"{4 * room:,}")
        written = Phrase("prompt.characters", count=f"{length:,}")
        raise UserError("prompt.too_long", length=written, reader=reader, room=limit)
    ids = _templated_or_refused(tokenizer, messages)
    if len(ids) > room:
        read, limit = (Phrase("prompt.tokens", count=f"{count:,}") for count in (len(ids), room))
        raise UserError("prompt.too_long", length=read, reader=reader, room=limit)
    return ids


def _templated_or_refused(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]
) -> list[int]:
    """Encode messages. A model's template is its own program: each of its errors becomes a UserError."""
    try:
        ids = _templated(tokenizer, messages)
    except Exception as error:
        words = first_line(error)[:TEMPLATE_WORDS]
        code = "prompt.template"
        if messages[0]["role"] == "system":
            folded = {**messages[1], "content": "\n\n".join(one["content"] for one in messages[:2])}
            with suppress(Exception):
                _templated(tokenizer, [folded, *messages[2:]])
                code = "prompt.no_system"
        raise UserError(code, words=words) from error
    if ids and ids != _without_prompt(tokenizer, messages):
        return ids
    if tokenizer(messages[-1]["content"], add_special_tokens=False)["input_ids"]:
        raise UserError("prompt.template", words=Phrase("prompt.left_out"))
    raise UserError("prompt.no_tokens")


def _without_prompt(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]
) -> list[int] | None:
    """Return the ids of messages with an empty prompt; None if the template refuses that."""
    with suppress(Exception):
        return _templated(tokenizer, [*messages[:-1], {**messages[-1], "content": ""}])
    return None


def _templated(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> list[int]:
    if not tokenizer.chat_template:
        text = "\n\n".join(message["content"] for message in messages)
        return list(tokenizer(text, split_special_tokens=True)["input_ids"])
    encoded: Any = tokenizer.apply_chat_template(
        list(messages), add_generation_prompt=True, return_dict=True, sanitize_control_tokens=True
    )
    return list(encoded["input_ids"])


@dataclass(frozen=True, slots=True)
class Transcript:
    """The ids of a conversation up to its last answer.

    encoded: the prompt as it was encoded; committed: the ids that were read and generated in its place, with the answer
    """

    encoded: list[int]
    committed: list[int]


def as_generated(
    tokenizer: PreTrainedTokenizerBase, encoded: list[int], last: Transcript | None
) -> list[int]:
    """Return a prompt with the answer before it as it was generated: encoding its text again may give other ids.

    encoded: the prompt, which is returned as it is if it does not continue the last one
    """
    begin = len(last.encoded) if last else 0
    if last is None or encoded[:begin] != last.encoded:
        return encoded
    special = frozenset(tokenizer.all_special_ids)
    end = next((at for at in range(begin, len(encoded)) if encoded[at] in special), begin)
    shared = same_prefix(last.committed, last.encoded)
    answer = [one for one in last.committed[shared:] if one not in special]
    again = [one for one in encoded[shared:end] if one not in special]
    texts = [str(tokenizer.decode(ids)).strip() for ids in (answer, again)]
    if texts[0] != texts[1] or len(answer) - len(again) > LEAST_ANSWER // 2:
        return encoded
    ended = bool(last.committed) and last.committed[-1] in special
    return last.committed[: len(last.committed) - ended] + encoded[end:]


class TokenText:
    """Adds text to the events of one run.

    Committed tokens get the text that they add to what stands before them: a character of several
    tokens appears with its last one. Other tokens are shown as they would stand alone.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._anchor = list(prompt_ids[-1:])
        self._anchor_text = self._decode(self._anchor)
        self._pieces: dict[int, str] = {}
        self._special = frozenset(tokenizer.all_special_ids)
        self._pending: list[int] = []  # committed ids whose characters are incomplete
        # Some ids before them with their text, because spaces depend on the left neighbour.
        self._before, self._before_text = self._anchor, self._anchor_text
        self.answer = ""

    def _decode(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(token_ids)))

    def filled(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events of the run with text in their nodes.

        A step that ends inside of a character waits for the next step: it is shown with the rest if the text ends there.
        """
        held: list[Event] = []  # such a step, and the draft after it
        try:
            for event in events:
                if held and not isinstance(event, Drafted):
                    if not self._continues(event):
                        held[0] = self._ended(held[0])
                    yield from held
                    held = []
                shown = self.fill(event)
                if held or (self._pending and isinstance(shown, Verified)):
                    held.append(shown)
                else:
                    yield shown
        except Exception:
            yield from held
            raise

    def fill(self, event: Event) -> Event:
        match event:
            case Drafted() if event.nodes:
                return replace(event, nodes=tuple(self._alone(node) for node in event.nodes))
            case Verified():
                return self._verified(event)
        return event

    def _continues(self, event: Event) -> bool:
        """Whether an event is a step whose first token may complete a character."""
        if not isinstance(event, Verified):
            return False
        first = event.nodes[event.path[0]] if event.path else event.next
        return first is None or first.token_id not in self._special

    def _ended(self, event: Event) -> Event:
        """Return the last step of a text with the bytes of an incomplete character."""
        assert isinstance(event, Verified)
        rest = self._rest()
        if event.next is not None:
            return replace(event, next=replace(event.next, text=event.next.text + rest))
        nodes, last = list(event.nodes), event.path[-1]
        nodes[last] = replace(nodes[last], text=nodes[last].text + rest)
        return replace(event, nodes=tuple(nodes))

    def _rest(self) -> str:
        """Return the text of an incomplete character, to which nothing is added any more."""
        rest = self._decode(self._pending) if self._pending else ""
        self._pending.clear()
        self.answer += rest
        return rest

    def _verified(self, event: Verified) -> Verified:
        nodes = [self._alone(node) for node in event.nodes]
        own = event.next
        committed = [*(nodes[node] for node in event.path), *([own] if own else [])]
        texts: list[str] = []
        for node in committed:
            assert node.token_id is not None  # our own engine reports every token
            if node.token_id in self._special and texts:
                texts[-1] += self._rest()
            texts.append(self._commit(node.token_id))
        for index, text in zip(event.path, texts, strict=False):
            nodes[index] = replace(nodes[index], text=text)
        own = own and replace(own, text=texts[-1])
        return replace(event, nodes=tuple(nodes), next=own, places=self._places(event.places))

    def _places(self, places: tuple[Place, ...] | None) -> tuple[Place, ...] | None:
        if places is None:
            return None

        def named(choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
            return tuple(replace(choice, text=self._piece(choice.token_id)) for choice in choices)

        return tuple(
            Place(at.after, named(at.target), named(at.draft), named(at.residual)) for at in places
        )

    def _alone(self, node: Node) -> Node:
        assert node.token_id is not None
        return replace(node, text=self._piece(node.token_id))

    def _piece(self, token_id: int) -> str:
        if token_id not in self._pieces:
            joined = self._decode([*self._anchor, token_id])
            self._pieces[token_id] = joined[len(self._anchor_text) :]
        return self._pieces[token_id]

    def _commit(self, token_id: int) -> str:
        self._pending.append(token_id)
        ids = [*self._before, *self._pending]
        whole = self._decode(ids)
        if whole.startswith(self._before_text):
            text = whole[len(self._before_text) :]
        else:  # byte tokens: an incomplete character makes those before it unreadable, too
            text = self._decode(self._pending)
        if text.endswith(UNDECODED) and len(self._pending) < LONGEST_CHARACTER:
            return ""
        self._before, self._before_text = self._shortened(ids, whole)
        self._pending.clear()
        if token_id not in self._special:
            self.answer += text
        return text

    def _shortened(self, ids: list[int], whole: str) -> tuple[list[int], str]:
        """Return the last few ids with their text, if there are many. They begin with a whole character."""
        if len(ids) <= MOST_BEFORE:
            return ids, whole
        for count in range(FEWEST_BEFORE, FEWEST_BEFORE + LONGEST_CHARACTER):
            text = self._decode(ids[-count:])
            if whole.endswith(text) and not text.startswith(UNDECODED):
                return ids[-count:], text
        return ids[-FEWEST_BEFORE:], self._decode(ids[-FEWEST_BEFORE:])
