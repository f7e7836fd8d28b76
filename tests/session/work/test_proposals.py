"""Drafts of every method at one position: each runs alone, is verified by the target, and leaves no state."""

import json
import threading
from dataclasses import replace

import pytest
from letters import letters_studio, tiny_pair

from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings, Sampling
from specdemo.drafters.methods import METHODS
from specdemo.session.loaded import Loaded
from specdemo.session.work.proposals import Comparison
from specdemo.trace.events import Status
from specdemo.trace.metrics import output_ids
from specdemo.trace.replay import RUNS
from specdemo.ui.tabs.proposals import ProposalHandlers

CONSTANT = RunSettings(policy="constant", lookahead=4)
WRITING = {"max_new_tokens": 16, "temperature": 0.0}
DRAFTING = {"policy": "constant", "lookahead": 3, "temperature": 0.0}


@pytest.fixture
def studio(draft_weights):
    """A real studio whose pair is a tiny target with a letter a token, and a draft."""
    return letters_studio(tiny_pair(draft_weights))


def written(comparison, **settings):
    *_, text = comparison.write("abcabc", RunSettings(max_new_tokens=24, **settings))
    return text


def test_every_method_is_asked_and_judged_by_the_text_itself(studio):
    comparison = Comparison(studio)
    text = written(comparison)
    assert len(text.tokens) == 24
    position = 10
    guesses = {guess.method: guess for guess in comparison.guesses(text, position, CONSTANT)}
    methods = [method.name for method in studio.methods() if method.name != "nothing"]
    assert list(guesses) == methods  # in the order of the menu
    ahead = [node.token_id for node in text.tokens[position:]]
    drafted = 0
    for guess in guesses.values():
        if guess.why_not:
            continue
        step = guess.verified
        drafted += len(step.nodes)
        said = [step.nodes[node].token_id for node in step.path] + [step.next.token_id]
        if not next(m for m in studio.methods() if m.name == guess.method).lossy:
            assert said == ahead[: len(said)], guess.method
        assert guess.drafted.draft_seconds >= 0
        assert all(node.text for node in step.nodes)
    assert drafted > 8
    assert guesses["medusa"].why_not
    assert guesses["draft_model"].verified.nodes[0].target_prob is not None
    chain = guesses["draft_model"].verified
    assert len(chain.nodes) == 4
    if chain.next.status is Status.CORRECTION:
        assert chain.nodes[len(chain.path)].status is Status.REJECTED


def test_an_added_method_is_asked_like_the_others(studio):
    studio.add(replace(METHODS["ngram"], name="own"))
    comparison = Comparison(studio)
    guesses = comparison.guesses(written(comparison), 10, CONSTANT)
    paths = {guess.method: guess.verified and guess.verified.path for guess in guesses}
    assert paths["own"] == paths["ngram"]


def test_a_request_for_drafts_leaves_nothing_behind(studio):
    comparison = Comparison(studio)
    text = written(comparison)

    def paths(position):
        guesses = comparison.guesses(text, position, CONSTANT)
        return [guess.verified and guess.verified.path for guess in guesses]

    once, _, again = paths(5), paths(17), paths(5)
    assert once == again
    assert written(comparison) == text
    assert comparison._conversation._memory is None


def test_cancel_is_heeded_between_two_methods(studio):
    comparison, cancel = Comparison(studio), threading.Event()
    text = written(comparison)
    seen = []
    for guess in comparison.guesses(text, 3, CONSTANT, cancel=cancel):
        seen.append(guess)
        cancel.set()
    assert len(seen) == 1


def test_sampling_goes_on_with_the_text_of_the_seed_under_every_method(studio):
    comparison, sampling = Comparison(studio), Sampling(temperature=1.0, seed=3)
    text = written(comparison, sampling=sampling)
    settings = RunSettings(policy="constant", lookahead=4, sampling=sampling)
    rest = [token.token_id for token in text.tokens[4:]]
    steps = [guess.verified for guess in comparison.guesses(text, 4, settings)]
    for step in filter(None, steps):
        new_ids = output_ids([step])
        assert new_ids == rest[: len(new_ids)]
        assert all(node.draw is None and node.accept_prob in (None, 0, 1) for node in step.nodes)
    assert max(len(step.path) for step in filter(None, steps)) > 0


def test_a_text_of_another_model_is_not_gone_on_with(studio, draft_weights):
    comparison = Comparison(studio)
    text = written(comparison)
    studio.use(Loaded(studio.settings, tiny_pair(draft_weights)))
    with pytest.raises(UserError, match="Another model"):
        next(comparison.guesses(text, 3, CONSTANT))
    with pytest.raises(UserError, match="lookahead"):
        next(comparison.guesses(written(comparison), 3, RunSettings(lookahead=0)))


def shown(values):
    return [json.loads(value) for value in values if isinstance(value, str)]


def test_the_page_writes_asks_and_answers_a_chosen_place(studio):
    page = ProposalHandlers(studio, RUNS)
    visitor, first = page.begin(None)
    assert json.loads(first)["phase"] == "writing"
    last = shown(page.run(visitor, "abcabc", "", WRITING))[-1]
    assert len(last["tokens"]) == 16
    assert last["position"] == 4
    *_, asked = shown(page.ask(visitor, DRAFTING))
    assert asked["phase"] == "done"
    assert {row["method"] for row in asked["rows"]} >= {"draft_model", "tree", "medusa"}
    visitor, chosen = page.choose(visitor, json.dumps({"position": 99}))
    assert json.loads(chosen)["position"] == 16
    page.stop(visitor)
    assert shown(page.ask(visitor, DRAFTING)) == []


def test_the_page_explains_an_impossible_request(studio):
    page = ProposalHandlers(studio, RUNS)
    visitor, _ = page.begin(None)
    assert "prompt is empty" in shown(page.run(visitor, " ", "", WRITING))[-1]["error"]
    _, value = page.choose(None, '{"position": 3}')
    assert "no text yet" in json.loads(value)["error"]
