"""The command line's own output."""

import re
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace

import pytest
from programs import RECORDED
from rich.console import Console

from specdemo.cli import console
from specdemo.cli.parser import main
from specdemo.cli.show import show_metrics
from specdemo.drafters.methods import METHODS
from specdemo.files.catalogue import find
from specdemo.files.found import FoundModel
from specdemo.files.header import Header, StoredTensor
from specdemo.models.networks import folders
from specdemo.trace.codec import dumps
from specdemo.trace.events import SPECULATIVE, ModelInfo, RunStarted, Status, Trace, Verified
from specdemo.trace.metrics import output_text
from specdemo.trace.replay import parse, read


def told(monkeypatch, capsys):
    """Return the output of `run` for a recorded run, and the steps of its events."""
    events = read(RECORDED).trace.lane(SPECULATIVE).events
    conversation = SimpleNamespace(memory=SimpleNamespace(), run=lambda *_, **__: iter(events))
    monkeypatch.setattr(
        console, "open_studio", lambda _: SimpleNamespace(open=lambda: conversation)
    )
    assert main(["run", "Anything", "--no-baseline"]) == 0
    return capsys.readouterr().out, [event for event in events if isinstance(event, Verified)]


def test_run_into_a_file_writes_the_answer_alone(monkeypatch, capsys):
    text, steps = told(monkeypatch, capsys)
    assert any(node.status is Status.REJECTED for step in steps for node in step.nodes)
    assert text.strip() == output_text(steps).strip()


def test_run_in_a_terminal_shows_refused_tokens_struck_through(monkeypatch, capsys):
    terminal = Console(force_terminal=True, width=10_000, highlight=False, color_system="standard")
    monkeypatch.setattr(console, "out", terminal)
    text, steps = told(monkeypatch, capsys)
    refused = [node.text for step in steps for node in step.nodes if node.status is Status.REJECTED]
    words = [one for one in refused if one.strip().isalpha()]
    assert words
    struck = re.findall(r"\x1b\[9;[\d;]+m(.*?)\x1b\[0m", text)
    assert {*words} <= {*struck}


@pytest.mark.parametrize(
    ("precision", "kernel", "may_differ"),
    [
        ("nf4", "bitsandbytes NF4, compiled pass on AVX2", False),
        ("nf4", "bitsandbytes NF4, dequantise each pass, lean pass", True),
        ("bf16", "PyTorch bfloat16 on CPU, lean pass", True),
        ("fp32", "PyTorch float32 on CPU, lean pass", False),
    ],
)
def test_show_metrics_names_the_pass_and_what_it_means(capsys, precision, kernel, may_differ):
    trace = read(RECORDED).trace
    target = ModelInfo("tiny", precision=precision, kernel=kernel)
    events = (
        replace(event, target=target) if isinstance(event, RunStarted) else event
        for event in trace.events
    )
    show_metrics(Trace(tuple(events)), "measured")
    said = capsys.readouterr().err
    assert kernel in said.replace("\n", " ")
    assert ("near tie" in said.replace("\n", " ")) == may_differ


def test_a_run_that_has_decoded_nothing_has_no_figures(capsys):
    headers = [one for one in read(RECORDED).trace.events if isinstance(one, RunStarted)]
    show_metrics(Trace(tuple(headers)), "measured")
    assert "tokens/s" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *(
            (f"{command} {path}", said)
            for command in (
                "run x --save",
                "bench --json",
                f"export {RECORDED} --csv",
            )
            for path, said in (("not/there", "no folder"), (".", "is a folder"))
        ),
        ("run x --save /proc/none/x", "no folder"),
        ("run x --save /proc/x", "cannot be written"),
        ("bench gpu --out not/there", "no folder"),
        ("export class-pack FILE", "FILE cannot be written"),
        ("export site FILE", "FILE cannot be written: Not a directory"),
        ("export draft FILE", "FILE cannot be written"),
        *(
            (f"{command} MODEL", "MODEL contains other files")
            for command in (
                "export draft",
                "export drafter MODEL --layout dflash",
                "export class-pack",
                "train draft --prompts FILE --out",
            )
        ),
        ("train draft --prompts FILE --out FILE", "FILE cannot be written"),
        ("train datastore FILE --out FILE/below", "FILE/below cannot be written"),
        ("bench --suite missing", "missing cannot be read"),
        ("bench --suite EMPTY", "EMPTY contains no prompts"),
        ("bench pairs --suite EMPTY", "EMPTY contains no prompts"),
        ("run", "Give one prompt"),
        ("run hello --prompts FILE", "Give one prompt"),
        ("run --prompts FILE --save x", "--save"),
        ("run --prompts EMPTY", "EMPTY contains no prompts"),
        ("run --prompts missing", "missing cannot be read"),
        ("run --prompts .", "cannot be read: Is a directory"),
        ("train feature --answers missing --out new", "missing cannot be read"),
        ("train draft --prompts FILE --out new --init missing", "no folder missing"),
        ("train draft --answers FILE --out new", "FILE cannot be read: it is no .npz file"),
        ("train datastore --prompts missing --out new", "missing cannot be read"),
        ("run x --lookahead 99", "lookahead is 99; it must be a whole number between 1 and 32."),
        (f"export {RECORDED}", "--csv"),
        (f"export {RECORDED} --csv new --html ./new", "name the same file, new."),
        ("export FILE --html new", "FILE is not a trace"),
        ("run x --method magic", "no drafting method 'magic'"),
        ("compare x --methods auto,magic", "no drafting method 'magic'"),
        ("audit --methods magic", "no drafting method 'magic'"),
        ("bench --lanes auto,magic", "no drafting method 'magic'"),
        ("bench --lanes draft_model:constant:x", "draft_model:constant:x"),
        ("bench pairs --presets warm", "warm"),
        ("bench pairs --presets 1/1/1/nan", "1/1/1/nan"),
        ("bench pairs --presets 1/1/1/1e999", "1/1/1/1e999"),
        ("bench pairs --lanes ngram,magic", "no drafting method 'magic'"),
        ("audit seeds --methods ngram,magic", "no drafting method 'magic'"),
        ("tune FILE --sizes 4 1", "takes no file and no server"),
        ("import FILE --save .", "contains other files"),
    ],
)
def test_paths_and_names_are_checked_before_loading(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("FILE").write_text("a prompt\n")
    Path("EMPTY").write_text("")
    Path("MODEL").mkdir()
    Path("MODEL", "config.json").write_text('{"model_type": "llama"}')
    for opened in ("open_studio", "load_studio"):
        monkeypatch.setattr(console, opened, lambda *_: pytest.fail("a model was loaded"))
    assert main(words.split()) == 1
    assert said in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["EMPTY", "FILE", "MODEL"]


@pytest.mark.parametrize(
    "words",
    [
        "run --at-once 0", "compare x --repeat 0", "bench --repeat 0", "bench --limit 0",
        "bench --concurrent 8,-1", "bench gpu --minutes nan", "bench gpu --minutes -1",
        "bench pairs --tokens 0", "audit --runs 0", "audit --tokens 1",
        "audit counterexample --runs 0", "audit counterexample --runs -5", "train draft --out x --minutes inf",
        "train draft --out x --layers 0", "train draft --out x --learning-rate nan", "bench --repeat x",
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_refused_by_the_parser(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(words.split())
    assert stopped.value.code == 2
    assert "is expected, not" in capsys.readouterr().err


def test_replay_leaves_out_the_token_that_ends_an_answer_and_does_not_break_lines(tmp_path, capsys):
    text = RECORDED.read_text(encoding="utf-8").replace('"reason":"length"', '"reason":"stop"')
    trace = parse(text).trace.lane(SPECULATIVE)
    saved = tmp_path / "saved.jsonl"
    saved.write_text(dumps(trace.events), encoding="utf-8")
    assert main(["replay", str(saved)]) == 0
    out, err = capsys.readouterr()
    assert out.strip() == output_text(trace).strip()
    assert [line.partition(":")[0] for line in err.splitlines()[-2:]] == ["speculative", "ended"]


@pytest.mark.parametrize("name", METHODS)
def test_help_of_a_method_shows_the_settings_and_policies_that_it_honours(name, capsys):
    with pytest.raises(SystemExit):
        main(["run", "--method", name, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    method = METHODS[name]
    assert ("--nodes N" in said) == ("nodes" in method.options)
    policies = f"step drafts: {', '.join(method.policies)} (default"
    assert (policies in said) == ("policy" in method.options)


def test_models_lists_what_other_programs_have_stored(tmp_path, monkeypatch, capsys):
    family = {"general.architecture": "qwen2"}
    tensors = {"token_embd.weight": StoredTensor((2 * 10**9,), 0, 0)}
    header = Header(family, tensors, "", "other")
    models = [
        FoundModel(
            "ollama:coder:1.5b", "Ollama", tmp_path, header, find("qwen2.5-coder-1.5b-instruct")
        ),
        FoundModel("/models/new.gguf", "LM Studio", tmp_path, header),
        FoundModel("/models/odd.gguf", "LM Studio", tmp_path, replace(header, values={})),
    ]
    monkeypatch.setattr("specdemo.files.found.found_models", lambda _: models)
    assert main(["models"]) == 0
    said = capsys.readouterr().out
    ours, other = said[said.index("ollama:coder") :].split("/models/new.gguf")
    assert "Ollama; recognised as Qwen2.5-Coder 1.5B" in ours
    assert "runs with: a drafter of its own" in ours
    other, odd = other.split("/models/odd.gguf")
    assert "runs with: drafts copied from the text" in other
    assert "does not run" in odd


def test_export_to_a_full_disk_leaves_an_earlier_file_as_it_was(tmp_path, monkeypatch, capsys):
    earlier = tmp_path / "run.html"
    earlier.write_text("earlier")
    write_text = Path.write_text

    def full(path: Path, text: str, **options) -> int:
        write_text(path, text[:100], **options)
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert main(["export", str(RECORDED), "--html", str(earlier)]) == 1
    assert f"{earlier} cannot be read or written: No space left" in capsys.readouterr().err
    assert earlier.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [earlier]


def test_export_draft_finds_a_draft_below_the_home_folder(monkeypatch, tmp_path, tiny_folder):
    """A shell leaves the `~` of `--draft=~/draft` as it is."""
    draft, written = tmp_path / "draft", []
    draft.mkdir()
    (draft / "config.json").write_text('{"specdemo": {"kind": "draft"}}')
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(folders, "export", lambda *paths: written.append(paths))
    words = ["export", "draft", str(tmp_path / "out"), "--target", str(tiny_folder)]
    assert main([*words, "--draft=~/draft"]) == 0
    assert written[0][0] == draft
