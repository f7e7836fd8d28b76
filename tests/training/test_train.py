"""Drafters are trained on a tiny target, interrupted, resumed, loaded next to it and exported."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import header
from tiny_files import WORDS, make_tiny_model, make_tiny_tokenizer
from tiny_gguf import tiny_gguf
from torch.nn import functional as F
from transformers import AutoTokenizer, LlamaForCausalLM

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.config.strings import load as load_strings
from specdemo.engine.cost import CostProfile
from specdemo.files.progress import Progress, silent
from specdemo.files.sources import resolve
from specdemo.models.networks.folders import export, read_config
from specdemo.models.networks.registry import NETWORKS
from specdemo.session.loaded import Loaded, load
from specdemo.session.runs import Caches
from specdemo.trace.events import Drafted
from specdemo.trace.metrics import output_ids
from specdemo.training import train as train_module
from specdemo.training.block import plan_blocks
from specdemo.training.data import (
    Answer,
    Row,
    batches,
    from_prompts_too,
    hold_out,
    positions,
    read_answers,
    save_answers,
    to_rows,
)
from specdemo.training.options import TrainOptions
from specdemo.training.package import write_published
from specdemo.training.student import EVERYWHERE, KL, L1, DistilledHead, spread
from specdemo.training.train import train

pytestmark = pytest.mark.xdist_group("training")  # one model, whose answers are written once


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random four-layer Llama with sharpened distributions, and a byte-level tokenizer."""
    folder = tmp_path_factory.mktemp("target") / "tiny-target"
    return make_tiny_model(folder, num_hidden_layers=4, initializer_range=0.1)


@pytest.fixture(scope="module", autouse=True)
def _loops_count() -> Iterator[None]:
    """Learn from loops too: a tiny target writes little else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_module, "REPEATED_SHARE", 1.0)
        yield


@pytest.fixture(scope="module")
def options(target: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainOptions:
    """A training of 30 steps on 24 prompts."""
    folder = tmp_path_factory.mktemp("training")
    words = WORDS.split()
    rows = [{"prompt": " ".join([*words[i % 9 : i % 9 + 4], words[i % 20]])} for i in range(24)]
    rows[3] = {"turns": ["the dog sat", "and then"]}
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return TrainOptions(
        target=str(target), out=folder / "draft", work_dir=folder / "work",
        prompts=(folder / "prompts.jsonl",), steps=30, layers=2, words=150, max_answer_tokens=12,
        batch_tokens=128, warm_up_steps=2, learning_rate=3e-3, seed=1, device="cpu",
    )  # fmt: skip


@pytest.fixture(scope="module")
def draft(options: TrainOptions) -> Path:
    """A trained draft model, for drafters on top of one."""
    out = options.work_dir.with_name("base")
    train(replace(options, out=out))
    return out


def test_loss_falls_resume_continues_and_the_draft_loads(
    options: TrainOptions, target: Path, tmp_path: Path
):
    stages: list[str] = []

    def interrupt(progress: Progress) -> None:
        stages.append(progress.stage)
        if progress.detail.startswith("step 12,"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(options, interrupt)
    assert list(dict.fromkeys(stages))[-2:] == ["answer", "train"]
    shard = next(options.work_dir.rglob("answers-*.npz"))
    states = next(options.work_dir.rglob("states-*.npy"))
    with np.load(shard) as answers:
        assert set(answers["temperature"]) == set(np.float16([0, 0.2, 0.7, 1]))
    before = shard.stat().st_mtime_ns, states.stat().st_mtime_ns
    report = train(options, lambda progress: stages.append(progress.stage))
    assert report.resumed_at == 12
    assert report.card.steps == 30
    assert (shard.stat().st_mtime_ns, states.stat().st_mtime_ns) == before
    whole = train(replace(options, work_dir=tmp_path / "work", out=tmp_path / "whole"))
    assert report.card.tokens_seen == whole.card.tokens_seen
    assert report.card.results["loss"] == pytest.approx(whole.card.results["loss"], rel=1e-3)
    assert report.card.losses[-1][1] < 0.9 * report.card.losses[0][1]
    assert 0 < report.card.results["greedy_agreement_all"] <= 1
    assert 0 < report.card.results["overlap"] <= report.card.results["coverage"] <= 1

    config = read_config(options.out)
    assert config["specdemo"]["embedding_from"] == "tiny-target"
    assert config["specdemo"]["card"]["seed"] == 1
    readme = (options.out / "README.md").read_text(encoding="utf-8")
    assert "Apache-2.0" in readme
    assert str(options.work_dir.parent) not in readme + json.dumps(config)

    pair = loaded(target, tmp_path, draft=str(options.out), precision="bf16").pair
    assert pair.draft_info.parameters == report.parameters
    draft = pair.open_draft("draft", pair.open_target()).model
    assert (len(draft.words.ids), draft.words.size) == (150, pair.target.vocabulary_size)
    logits = draft.read([5, 6, 7])
    assert logits.shape == (len(draft.words.tokens),)
    assert torch.isfinite(logits).all()

    export(options.out, target, tmp_path / "plain")
    plain = LlamaForCausalLM.from_pretrained(tmp_path / "plain")
    assert plain.config.num_hidden_layers == 2
    said = plain.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=3, do_sample=False)
    assert said.shape[1] <= 6
    assert AutoTokenizer.from_pretrained(tmp_path / "plain").eos_token == "<|im_end|>"


@pytest.mark.parametrize("kind", dict.fromkeys(row.kind for row in NETWORKS))
def test_every_kind_learns(options: TrainOptions, draft: Path, tmp_path: Path, kind: str):
    rounds = replace(options, kind=kind, steps=40, depth=3, out=tmp_path / kind, patience=99)
    if kind in ("block", "jet"):
        with pytest.raises(UserError, match="begins with one of the kind draft"):
            train(rounds)
        rounds = replace(rounds, init=draft)
    if kind == "medusa":  # its heads start near an optimum, which large steps leave
        rounds = replace(rounds, learning_rate=3e-4)
    report = train(rounds)
    assert len(report.card.checks) == 10
    checks = report.card.checks
    assert min(value for _, value in checks[1:]) < checks[0][1]
    assert 0 <= report.card.results["greedy_agreement"] <= 1
    measures = {re.sub(r"_\d+$", "", name) for name in report.card.results}
    assert measures <= set(load_strings("page")["VIEW"]["card"]["names"])
    config = read_config(tmp_path / kind)
    assert config["specdemo"]["kind"] == report.card.kind == kind
    if kind not in ("draft", "exit"):
        assert {"greedy_agreement_1", "greedy_agreement_2", "overlap_2"} <= set(report.card.results)
    if kind == "block":
        assert 0 <= report.card.results["calibration_error"] < 0.5


def test_heads_may_have_nothing_to_learn_from(options: TrainOptions, tmp_path: Path):
    """The first head guesses the second token of an answer, and these have one."""
    short = replace(options, kind="medusa", steps=2, max_answer_tokens=1, out=tmp_path / "medusa")
    assert train(short).card.results["tokens"] == 0


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2: biases of queries, keys and values, and a head of its own."""
    options = {"num_hidden_layers": 4, "initializer_range": 0.1, "tie_word_embeddings": False}
    folder = tmp_path_factory.mktemp("qwen") / "tiny-qwen"
    return make_tiny_model(folder, kind="qwen2", seed=1, **options)


@pytest.mark.parametrize("family", ["llama", "qwen"])
def test_a_feature_drafter_needs_no_draft_model(
    options: TrainOptions, target: Path, qwen: Path, tmp_path: Path, family: str
):
    folder = target if family == "llama" else qwen
    alone = replace(
        options, kind="feature", target=str(folder), out=tmp_path / "trained" / "feature", steps=24,
        inner=96, patience=99, work_dir=tmp_path / "work", cache_dir=tmp_path / "cache",
        precision="bf16" if family == "llama" else "nf4",
    )  # fmt: skip
    stages: list[str] = []
    report = train(alone, lambda progress: stages.append(progress.stage))
    assert "answer" in stages
    assert report.card.checks[-1][1] < report.card.checks[0][1]  # it starts as a good guess
    assert {"greedy_agreement_1", "overlap_3"} <= set(report.card.results)
    config = read_config(alone.out)
    assert (config["intermediate_size"], config["specdemo"]["reads"]) == (96, [1, 3, 4])
    assert sum(path.stat().st_size for path in alone.out.glob("*.safetensors")) < report.parameters

    trained = str(tmp_path / "trained")
    found = loaded(folder, tmp_path, draft="none", trained=trained, precision="fp32")
    assert found.pair.costs.draft_step > 0
    assert found.pair.draft_info is None
    cheap = CostProfile(((1, 1.0), (8, 1.1)), draft_step=0.01)
    caches = Caches(Loaded(found.settings, replace(found.pair, costs=cheap)))
    plain, _ = answer_of(caches, "nothing")
    for method in ("feature", "auto"):
        text, sources = answer_of(caches, method)
        assert text == plain
        assert "feature" in sources  # auto uses it if there is no draft model

    # The shards contain the states too: to continue the first drafter, the target is not needed.
    shards = sorted(alone.work_dir.rglob("texts/answers-*.npz"))
    more = replace(
        alone, prompts=(), answers=(shards[-1],), init=alone.out, inner=64, steps=4,
        out=tmp_path / "b",
    )  # fmt: skip
    stages.clear()
    again = train(more, lambda progress: stages.append(progress.stage))
    assert set(stages) == {"train", "evaluate"}
    assert again.card.checks[0][1] < report.card.checks[0][1]
    assert read_config(more.out)["intermediate_size"] == 96  # the width of the earlier drafter


@pytest.mark.usefixtures("compiled_pass")
@pytest.mark.parametrize(("source", "precision"), [("file", "file"), ("folder", "nf4")])
def test_answers_are_written_in_the_precision_of_the_run(
    options: TrainOptions, target: Path, tmp_path: Path, source: str, precision: str
):
    path = target
    if source == "file":
        words = make_tiny_tokenizer(size=288)
        path = tiny_gguf(tmp_path / "own.gguf", "llama", words, layers=4)
    asked = replace(
        options, target=str(path), kind="feature", out=tmp_path / "trained" / "feature", steps=2,
        inner=96, words=100, work_dir=tmp_path / "work", cache_dir=tmp_path / "cache",
    )  # fmt: skip
    report = train(asked)
    found = loaded(path, tmp_path, trained=str(tmp_path / "trained"))
    assert report.card.precision == found.pair.target.info.precision == precision
    assert "quantization_config" not in read_config(asked.out)
    assert answer_of(Caches(found), "feature")[1] == {"feature"}


@pytest.mark.parametrize(
    ("kind", "form", "layout"),
    [("feature", "eagle3", "speculators"), ("block", "dflash", "dflash")],
)
def test_a_drafter_of_a_published_form_runs_where_it_is_exported_and_read_back(
    options: TrainOptions, target: Path, tmp_path: Path, kind: str, form: str, layout: str
):
    """It reads inner states alone, learns and drafts."""
    out = tmp_path / "trained" / kind
    asked = replace(
        options, kind=kind, form=form, out=out, steps=24, inner=96, depth=3, precision="bf16",
        patience=99, work_dir=tmp_path / "work", cache_dir=tmp_path / "cache",
    )  # fmt: skip
    report = train(asked)
    assert report.card.checks[-1][1] < report.card.checks[0][1]
    assert {"greedy_agreement_1", "overlap_2"} <= set(report.card.results)
    assert read_config(out)["specdemo"]["reads"] == [1, 2]
    write_published(out, resolve(str(target), tmp_path), tmp_path / "published", layout)
    published = {"trained": "none", "drafter": str(tmp_path / "published")}
    for chosen in ({"trained": str(out.parent)}, published):
        caches = Caches(loaded(target, tmp_path, draft="none", precision="fp32", **chosen))
        text, sources = answer_of(caches, kind)
        assert (text, sources) == (answer_of(caches, "nothing")[0], {kind})


def loaded(target: Path, tmp_path: Path, **settings: str) -> Loaded:
    """Load a target as the program does. settings: further ones"""
    cache = tmp_path / "cache"
    return load(AppSettings(target=str(target), device="cpu", cache_dir=cache, **settings), silent)


def answer_of(caches: Caches, method: str) -> tuple[list[int], set[str]]:
    """A method's tokens after a text, and the sources of its drafts."""
    settings = RunSettings(method=method, policy="constant", fallback=False, max_new_tokens=24)
    events = list(caches.lane([5, 6, 7, 8, 9, 10], settings, header(method)))
    return output_ids(events), {one.source or method for one in events if isinstance(one, Drafted)}


def test_answers_alone_are_enough(options: TrainOptions, tmp_path: Path):
    random = np.random.default_rng(0)
    rows = [
        Answer("made", i, 0.0, random.integers(3, 280, 4), random.integers(3, 280, 6))
        for i in range(10)
    ]
    save_answers(tmp_path / "a.npz", rows, 300)
    again = read_answers([tmp_path / "a.npz"], 300)
    assert [row.answer_ids.tolist() for row in again] == [row.answer_ids.tolist() for row in rows]
    fewer = replace(options, prompts=(), answers=(tmp_path / "a.npz",), work_dir=tmp_path / "work")
    report = train(replace(fewer, steps=2, out=tmp_path / "draft", precision="bf16", layers=1))
    assert report.card.steps == 2


@pytest.mark.parametrize("along", [False, True])
def test_the_head_has_the_gradient_of_its_loss(along: bool):
    torch.manual_seed(0)
    states = torch.randn(700, 8, requires_grad=True)
    teacher, head = torch.randn(700, 8), torch.randn(30, 8)
    loss = DistilledHead.apply(states, teacher, head, None, None, along)
    loss.backward()
    same = states.detach().clone().requires_grad_()
    mine, theirs = ((x @ head.T).log_softmax(-1) for x in (same, teacher))
    divergence = F.kl_div(mine, theirs, log_target=True, reduction="none").sum(-1)
    apart = (mine.exp() - theirs.exp()).abs().sum(-1)
    weights = torch.ones(700)
    if along:  # a position counts the more, the more often the token before it is rejected
        weights[1:] = EVERYWHERE + (1 - EVERYWHERE) * apart.detach()[:-1] / 2
    wanted = (weights * (KL * divergence + L1 * apart)).sum() / weights.sum()
    wanted.backward()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-4)
    assert torch.allclose(states.grad, same.grad, atol=1e-6)


def test_answers_that_repeat_themselves_are_left_out(target: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(train_module, "REPEATED_SHARE", 0.15)
    tokenizer = AutoTokenizer.from_pretrained(target)
    texts = ("the dog sat on the mat", "and then " * 10)
    answers = [
        Answer("made", number, 0.0, np.arange(3), np.array(tokenizer.encode(text)))
        for number, text in enumerate(texts)
    ]
    rows = train_module._worth_learning(answers, to_rows(answers), tokenizer)
    assert [row.key for row in rows] == ["made/0"]


def test_positions_line_up_with_the_cache():
    # Prompt "a b", answer "x y z": b predicts x, x predicts y, y predicts z.
    answer = Answer("made", 0, 0.0, np.array([10, 11]), np.array([20, 21, 22]))
    rows = to_rows([answer, answer])
    assert rows[1].token_ids.tolist() == [10, 11, 20, 21]
    here, there = positions([rows[1]], answers_only=True)
    assert (here.tolist(), there.tolist()) == ([1, 2, 3], [5, 6, 7])


def test_an_answer_that_is_shorter_than_the_offset_has_a_block():
    row, single = Row("x", np.arange(9), 7, 0), Row("y", np.arange(1), 0, 9)
    plan = plan_blocks([row, single], 5, [4, 4], causal=False)
    assert plan.place.tolist() == [1, 2]
    assert plan.previous.tolist() == [7, 8]


def test_prompts_are_learned_from_behind_what_all_of_them_begin_with():
    # The template starts every prompt with 1 2; the prompts' own tokens follow it.
    prompts = ([1, 2, 7, 8, 3], [1, 2, 9, 3])
    answers = [Answer("made", i, 0.0, np.array(p), np.array([5, 6])) for i, p in enumerate(prompts)]
    learned = from_prompts_too(to_rows(answers))
    here, there = positions([learned[1]], answers_only=True)
    assert here.tolist() == [1, 2, 3, 4]  # 2 predicts the prompt's first word
    assert there.tolist() == [7, 8, 9, 10]


def test_batches_and_held_out_prompts_share_nothing():
    answers = [Answer("made", i // 2, 0.0, np.arange(3 + i % 40), np.arange(4)) for i in range(100)]
    rows = to_rows(answers)
    kept, held = hold_out(rows, 3, 0)
    assert len({row.key for row in held}) == 3
    trained = {row.key for row in kept}
    assert not trained & {row.key for row in held}
    more = [Answer("added", i, 0.0, np.arange(3), np.arange(4)) for i in range(400)]
    held_later = {row.key for row in hold_out(to_rows([*answers, *more]), 3, 0)[1]}
    assert len(held_later) == 3
    assert not trained & held_later
    plan = batches(rows, 100, 5)
    assert sorted(row.start for batch in plan for row in batch) == [row.start for row in rows]
    assert all(len(b) * max(len(r.token_ids) for r in b) <= 100 for b in plan if len(b) > 1)


@pytest.mark.parametrize(
    ("arguments", "layers"),
    [((4, 30), (0, 10, 20, 29)), ((2, 16), (0, 15)), ((4, 4), (0, 1, 2, 3)), ((1, 9), (8,))],
)
def test_layers_are_spread_evenly(arguments: tuple[int, int], layers: tuple[int, ...]):
    assert spread(*arguments) == layers


def other_drafter(folder: Path, **facts: object) -> Path:
    """The config of an earlier drafter of another target."""
    folder.mkdir()
    config = {"hidden_size": 32, "vocab_size": 9, "specdemo": {"format": "compact-1", **facts}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("match", "wrong"),
    [
        ("cannot be read", {"kind": "feature", "prompts": (), "answers": ("empty.npz",)}),
        ("contains no prompts", {"prompts": ("empty.npz",)}),
        (r"trace\.jsonl.*line 1 has no prompt", {"prompts": ("trace.jsonl",)}),
        ("nothing/here holds no drafter", {"init": "nothing/here"}),
        ("draft begins with one of the kind draft", {"init": "medusa"}),
        ("medusa does not begin with another", {"kind": "medusa", "init": "medusa"}),
        ("feature begins with one of the kind feature", {"kind": "feature", "init": "draft"}),
        ("feature begins with one of the kind feature", {"kind": "feature", "init": "above"}),
        ("draft was not trained for tiny-target: its hidden_size is 32", {"init": "draft"}),
        ("has 4 layers", {"layers": 9}),
        ("no form 'eagle3' of a drafter of the kind draft", {"form": "eagle3"}),
        ("cannot go on from", {"kind": "block", "form": "dflash", "init": "draft"}),
        ("nothing to train on", {"prompts": ()}),
    ],
)
def test_options_are_refused_before_the_target_is_loaded(
    options: TrainOptions, tmp_path: Path, monkeypatch, match: str, wrong: dict
):
    monkeypatch.setattr("specdemo.training.train.load_model", lambda *_: pytest.fail("loaded"))
    (tmp_path / "empty.npz").touch()
    (tmp_path / "trace.jsonl").write_text('{"type": "run_started"}\n')
    other_drafter(tmp_path / "medusa", kind="medusa")
    other_drafter(tmp_path / "draft", kind="draft")
    other_drafter(tmp_path / "above", kind="feature", extends=4)
    paths = {
        name: tmp_path / value if isinstance(value, str) else tuple(tmp_path / one for one in value)
        for name, value in wrong.items()
        if name in ("init", "prompts", "answers")
    }
    known = {"work_dir": tmp_path / "work", "out": tmp_path / "out", **wrong, **paths}
    with pytest.raises(UserError, match=match):
        train(replace(options, **known))


def test_impossible_training_is_refused(options: TrainOptions, target: Path, tmp_path: Path):
    other = copytree(target, tmp_path / "other")
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    (other / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    with pytest.raises(UserError, match="output head is not its embedding"):
        train(replace(options, target=str(other)))
    mistral = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
    (other / "config.json").write_text(json.dumps(config | mistral))
    with pytest.raises(UserError, match="architecture is mistral"):
        train(replace(options, target=str(other)))


def test_the_card_counts_the_prompts_of_every_form_of_file(tmp_path):
    texts = {
        "lines.txt": "one\ntwo\n",
        "rows.jsonl": '{"prompt": "one\u2028two", "licence": "MIT"}\n',
        "page.json": '{"examples": [{"prompt": "one"}]}',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    options = SimpleNamespace(prompts=[tmp_path / name for name in texts], answers=())
    assert train_module._data_lines(options, [])[:3] == (
        "prompts of lines.txt: 2 (licence not stated)",
        "prompts of rows.jsonl: 1 (MIT)",
        "prompts of page.json: 1 (licence not stated)",
    )
