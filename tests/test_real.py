"""The embedded pair itself: lossless in fp32, and transformers' own assisted generation with the exported draft."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from specdemo.cli.parser import main
from specdemo.config.settings import COUPLED, POLICIES, AppSettings, RunSettings, Sampling
from specdemo.config.strings import ASSETS
from specdemo.drafters.methods import METHODS
from specdemo.files.catalogue import find, partner
from specdemo.files.sources import resolve
from specdemo.models.networks.folders import export
from specdemo.session.studio import Studio
from specdemo.session.text import encode_prompt, read_suite
from specdemo.trace.events import Drafted
from specdemo.trace.metrics import measure, output_ids

pytestmark = pytest.mark.real
TOKENS = 24
PROMPT = "Write a Python function that adds two numbers, and explain it."


def opened(precision):
    studio = Studio(AppSettings.from_environment(precision=precision))
    studio.load()
    if studio.error:
        raise studio.error
    return studio


@pytest.fixture(scope="module")
def studio():
    return opened("fp32")


def ask(studio, settings, conversation=None, prompt=PROMPT):
    conversation = conversation or studio.open()
    settings = replace(settings, baseline=False)
    return list(conversation.run(prompt, settings, cancel=threading.Event()))


@pytest.fixture(scope="module")
def reference(studio):
    return answer_of(studio.pair)


def answer_of(pair, **options):
    """transformers' own greedy answer."""
    ids = encode_prompt(pair.tokenizer, PROMPT, pair.context)
    mask = torch.ones(1, len(ids), dtype=torch.long)
    options |= {"attention_mask": mask, "do_sample": False, "max_new_tokens": TOKENS}
    return pair.target.model.generate(torch.tensor([ids]), **options)[0, len(ids) :].tolist()


@pytest.mark.parametrize(
    ("method", "policy"),
    [(name, "cost") for name in METHODS]
    + [("draft_model", policy) for policy in POLICIES if policy != "cost"],
)
def test_greedy_output_in_fp32_is_that_of_transformers(studio, reference, method, policy):
    assert next(m for m in studio.methods() if m.name == method).available
    events = ask(
        studio, RunSettings(method=method, policy=policy, lookahead=4, max_new_tokens=TOKENS)
    )
    assert output_ids(events) == reference


@pytest.fixture(scope="module")
def four_bit():
    return opened("nf4")


@pytest.fixture(scope="module")
def compiled(four_bit):
    """The pair in NF4 by the compiled pass, in which a row's bits do not depend on its company; and plain decoding's answer."""
    if "compiled pass" not in four_bit.pair.target.info.kernel:
        pytest.skip("this processor does not run the compiled pass")
    plain = ask(four_bit, RunSettings(method="nothing", max_new_tokens=2 * TOKENS))
    return four_bit, output_ids(plain)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "quantised_self"])
def test_greedy_output_in_nf4_is_plain_decodings(compiled, method):
    studio, plain = compiled
    settings = RunSettings(method=method, max_new_tokens=2 * TOKENS, fallback=False)
    assert output_ids(ask(studio, settings)) == plain


# Temperatures and ways of shaping. Each prompt is tested with one of them and with one method, in turn.
SHAPED = (
    Sampling(0.3, repetition_penalty=1.2, seed=1),
    Sampling(0.7, top_p=0.9, seed=2),
    Sampling(1.0, seed=3),
    Sampling(1.5, top_k=40, top_p=0.95, seed=4),
)
COUPLED_METHODS = [name for name in METHODS if name not in ("nothing", "quantised_self")]
PROMPTS = [item.turns[0] for item in read_suite(ASSETS / "suites" / "examples.jsonl")[:20]]


def coupled(studio, method, sampling, prompt=PROMPT):
    """The output of a method with the noise of the seed."""
    settings = RunSettings(
        method=method, lookahead=4, max_new_tokens=12, fallback=False, verification=COUPLED
    )
    return output_ids(ask(studio, replace(settings, sampling=sampling), prompt=prompt))


def has_one_text(studio, methods, number):
    """Whether a method writes plain decoding's text after one of the prompts, with one way of shaping."""
    method, sampling = methods[number % len(methods)], SHAPED[number % len(SHAPED)]
    given = studio, method, sampling, PROMPTS[number]
    return coupled(*given) == coupled(studio, "nothing", *given[2:])


@pytest.mark.parametrize("number", range(len(PROMPTS)))
def test_a_seed_has_one_text_in_fp32(studio, number):
    assert has_one_text(studio, [*COUPLED_METHODS, "quantised_self"], number)


@pytest.mark.parametrize("number", range(len(PROMPTS)))
def test_a_seed_has_one_text_in_the_compiled_pass(compiled, number):
    assert has_one_text(compiled[0], COUPLED_METHODS, number)


def test_a_seed_has_one_text_in_passes_that_runs_share(compiled):
    """Four methods run at the same time, each with its own sampling."""
    studio, _ = compiled
    methods = ("draft_model", "tree", "feature", "auto")
    with ThreadPoolExecutor(len(methods)) as pool:
        found = list(pool.map(coupled, [studio] * len(methods), methods, SHAPED))
    assert found == [coupled(studio, "nothing", sampling) for sampling in SHAPED]


def test_auto_drafts_with_the_feature_drafter_before_the_draft_model(four_bit):
    events = ask(four_bit, RunSettings(method="auto"))
    sources = {event.source for event in events if isinstance(event, Drafted)}
    assert "feature" in sources
    assert "draft_model" not in sources


def test_the_draft_model_agrees_with_the_target_often(four_bit):
    """Guards against a broken draft; the README has the full figures, on a suite."""
    prompts = (
        "Explain photosynthesis to a ten-year-old.",
        "List ten tips for learning a new language.",
        "Tom has 3 boxes with 12 apples each. He gives away 7 apples. How many are left?",
    )
    settings = RunSettings(method="draft_model", policy="constant", lookahead=4, fallback=False)
    settings = replace(settings, max_new_tokens=80)
    runs = [measure(ask(four_bit, settings, prompt=prompt)) for prompt in prompts]
    assert sum(run.first_accepted for run in runs) > 0.4 * sum(run.drafting_steps for run in runs)
    assert sum(run.new_tokens for run in runs) > 1.7 * sum(run.steps for run in runs)


def test_a_follow_up_reuses_what_is_cached_and_changes_nothing(studio):
    conversation = studio.open()
    settings = RunSettings(max_new_tokens=24)
    ask(studio, settings, conversation)
    follow_up = ask(studio, settings, conversation, "Shorter, please.")
    assert follow_up[0].cached_tokens > 40
    plain = studio.open()
    for prompt in (PROMPT, "Shorter, please."):
        events = ask(studio, replace(settings, method="nothing"), plain, prompt)
    assert output_ids(events) == output_ids(follow_up)


def test_transformers_runs_the_exported_draft(studio, reference, tmp_path):
    from transformers import AutoModelForCausalLM

    settings = studio.settings
    target = resolve(settings.target, settings.cache_dir)
    export(find(partner(settings.target)).folder, target.folder, tmp_path)
    draft = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert answer_of(studio.pair, assistant_model=draft) == reference


def test_the_draft_as_a_gguf_file_computes_what_its_export_computes(studio, tmp_path, monkeypatch):
    """transformers reads the file on its own: names, order of rows, tokenizer. 8 bits in other blocks round differently."""
    from transformers import AutoModelForCausalLM

    settings = studio.settings
    target, folder = resolve(settings.target, settings.cache_dir), find(partner(settings.target)).folder  # fmt: skip
    export(folder, target.folder, tmp_path / "plain")
    monkeypatch.setenv("SPECDEMO_CACHE", str(settings.cache_dir))
    words = ["export", "draft", str(tmp_path / "draft.gguf"), "--target", settings.target]
    assert main(words) == 0
    ids = torch.tensor([encode_prompt(studio.pair.tokenizer, PROMPT, studio.pair.context)])
    logits = []
    for path, options in ((tmp_path / "plain", {}), (tmp_path, {"gguf_file": "draft.gguf"})):
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **options)
        with torch.inference_mode():
            logits.append(model(ids).logits[0])
    first, second = logits
    assert (first.argmax(-1) == second.argmax(-1)).float().mean() > 0.9
    assert (first - second).std() < 0.1 * first.std()
