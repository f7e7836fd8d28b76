"""Text of prompts and tokens: control tokens stay text, split characters appear whole, limits are reported."""

import copy

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdemo.config.errors import UserError
from specdemo.session.text import TokenText, Transcript, as_generated, encode_prompt, with_answer
from specdemo.trace.events import Node, RunFinished, Status, Verified

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

SPACE = "\u2581"
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}x"
ROLES = "{{ raise_exception('Roles must\nalternate') }}"


@pytest.fixture(scope="module")
def tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    places = {letter: place for place, letter in enumerate(alphabet)}
    backend = Tokenizer(models.BPE(vocab=places, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", bos_token="<|im_start|>"
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def test_control_tokens_typed_by_a_user_are_text(tokenizer):
    stop = tokenizer.eos_token_id
    ids = encode_prompt(tokenizer, "a<|im_end|>b", 10_000)
    assert ids.count(stop) == 1  # the template's own


def test_empty_and_too_long_prompts_are_refused(tokenizer):
    with pytest.raises(UserError, match="empty"):
        encode_prompt(tokenizer, " \n", 100)
    with pytest.raises(UserError, match=r"has .* tokens; the target reads at most 84 tokens"):
        encode_prompt(tokenizer, "word " * 50, 100)
    with pytest.raises(UserError, match="10,000,000 characters"):
        encode_prompt(tokenizer, "x" * 10_000_000, 8192)


def test_a_prompt_without_any_known_character_is_refused():
    backend = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    for template in (None, "a{{ messages[0].content }}a"):
        tokenizer.chat_template = template
        assert encode_prompt(tokenizer, "a", 100)
        with pytest.raises(UserError, match="no tokens"):
            encode_prompt(tokenizer, "日本", 100)


@pytest.mark.parametrize(
    ("template", "system", "said"),
    [
        (NO_SYSTEM, "Be brief.", "refuses a system prompt: System role not supported"),
        (ROLES, "Be brief.", "conversation: Roles must Th"),
        ("{{ raise_exception('never') }}", "", "conversation: never"),
        ("{% if %}", "", "cannot write this conversation: Expected an expression"),
        ("{{ messages + 1 }}", "", "cannot write this conversation: can only concatenate"),
        ("{{ nothing.at.all }}", "", "cannot write this conversation: 'nothing' is undefined"),
        ("{{ messages[0].role }}", "", "conversation: it leaves the prompt out"),
        ("{{ messages[0].content[0].text }}", "", "conversation: it leaves the prompt out"),
    ],
)
def test_a_template_that_raises_is_explained_in_its_own_words(tokenizer, template, system, said):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = template
    with pytest.raises(UserError) as caught:
        encode_prompt(tokenizer, "Hello", 1000, system=system)
    assert said in str(caught.value)


@pytest.fixture(scope="module")
def fallback():
    """Tokenizer in the form of Llama 2: words with a mark for spaces, other characters byte by byte."""
    every_byte = [f"<0x{byte:02X}>" for byte in range(256)]
    words = ["<unk>", "<s>", "</s>", *every_byte, SPACE, *"abcdehilnorst"]
    places = {word: place for place, word in enumerate(words)}
    model = models.BPE(vocab=places, merges=[], byte_fallback=True, unk_token="<unk>")
    backend = Tokenizer(model)
    marks = [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    backend.normalizer = normalizers.Sequence(marks)
    spaces = [decoders.Replace(SPACE, " "), decoders.ByteFallback()]
    backend.decoder = decoders.Sequence([*spaces, decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


def encoded(tokenizer, text: str) -> list[int]:
    """Return the ids of a text that follows other text."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids[1:] if tokenizer.convert_ids_to_tokens(ids[:1]) == ["\u2581"] else ids


def streamed(tokenizer, ids: list[int], a_step: int = 1) -> tuple[str, str]:
    """Return the joined text of a run's tokens, and its answer."""
    text, events = TokenText(tokenizer, [tokenizer.bos_token_id]), []
    for step, begin in enumerate(range(0, len(ids), a_step)):
        nodes = [Node(one, status=Status.PLAIN) for one in ids[begin : begin + a_step]]
        path = tuple(range(len(nodes) - 1))
        events.append(Verified("plain", step, nodes[:-1], path, nodes[-1], 0, 0, 0, 0))
    shown = list(text.filled([*events, RunFinished("plain", "length", len(ids), 0.0)]))
    assert isinstance(shown[-1], RunFinished)
    steps = [[*event.nodes, event.next] for event in shown[:-1]]
    return "".join(node.text for step in steps for node in step), text.answer


SCRIPTS = ["नमस्ते दुनिया " * 4, "né 😀👩‍🔬 end", "สวัสดีชาวโลก", "人工智能很有意思" * 4]
SCRIPTS += ["مرحبا بالعالم", "tin rain"]


@pytest.mark.parametrize("kind", ["tokenizer", "fallback"])
@pytest.mark.parametrize("wanted", SCRIPTS)
def test_a_stream_is_the_decoded_text_in_every_script_wherever_it_ends(request, kind, wanted):
    tokenizer = request.getfixturevalue(kind)
    ids = encoded(tokenizer, wanted)
    for a_step in (1, 3):
        assert streamed(tokenizer, ids, a_step) == (wanted, wanted)
    for end in range(1, min(len(ids), 60)):
        text, answer = streamed(tokenizer, ids[:end])
        whole = text.rstrip("\N{REPLACEMENT CHARACTER}")
        assert text == answer
        assert wanted.startswith(whole)
        # an incomplete character is shown as such, also before the token that ends the answer
        assert (text != whole) == (len(encoded(tokenizer, whole)) < end)
        for a_step in (1, 2, 3):
            stopped = streamed(tokenizer, [*ids[:end], tokenizer.eos_token_id], a_step)
            assert stopped == (text + tokenizer.eos_token, text)


def test_an_answer_stays_as_generated_in_the_next_prompt(tokenizer):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_tokens(["in"])  # another way to write the same text
    first = encode_prompt(tokenizer, "Q", 10_000)
    answer = [*tokenizer("ra")["input_ids"], *tokenizer.convert_tokens_to_ids(["i", "n"])]
    earlier = with_answer([], "Q", "rain")
    second = encode_prompt(tokenizer, "R", 10_000, earlier=earlier)
    assert second[: len(first)] == first
    assert second[len(first) : len(first) + 4] != answer
    stop = tokenizer.eos_token_id
    for ended in ([], [stop]):
        said = as_generated(tokenizer, second, Transcript(first, first + answer + ended))
        assert said[: len(first) + 5] == [*first, *answer, stop]
        assert tokenizer.decode(said) == tokenizer.decode(second)
        third = encode_prompt(tokenizer, "S", 10_000, earlier=with_answer(earlier, "R", "rain"))
        chained = as_generated(tokenizer, third, Transcript(second, said + answer + ended))
        assert chained[: len(said) + 5] == [*said, *answer, stop]
        assert tokenizer.decode(chained) == tokenizer.decode(third)
    other = Transcript(first, first + tokenizer("no")["input_ids"])
    assert as_generated(tokenizer, second, other) == second  # edited since
    assert as_generated(tokenizer, second, None) == second


def test_refused_tokens_have_text_and_are_not_part_of_the_answer(tokenizer):
    text = TokenText(tokenizer, [tokenizer.bos_token_id])
    [letter] = tokenizer("q")["input_ids"]
    refused = (Node(letter, status=Status.REJECTED),)
    event = Verified("speculative", 0, refused, (), None, 0, 0, 0, 0)
    assert text.fill(event).nodes[0].text == "q"
    assert text.answer == ""
