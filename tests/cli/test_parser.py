"""Every command and option: help, default, earlier names, and the settings that options mean."""

import argparse
import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from programs import RECORDED, python

from specdemo.cli import commands
from specdemo.cli.commands import app as app_command
from specdemo.cli.options import app_settings, lane_settings, run_settings
from specdemo.cli.parser import COMMANDS, command_parser, main, parse
from specdemo.config.errors import UserError
from specdemo.config.settings import BLOCK, TOKEN, AppSettings, RunSettings, Sampling, fields

FOLDER = Path(commands.__file__).parent


PARSERS = {name: command_parser(name) for name in COMMANDS}
ACTIONS = [
    pytest.param(action, id=f"{name} {action.dest}")
    for name, parser in PARSERS.items()
    for action in parser._actions
    if action.help is not argparse.SUPPRESS and not isinstance(action, argparse._HelpAction)
]


def parsed(words: str) -> argparse.Namespace:
    return parse(words.split())


@pytest.mark.parametrize("action", ACTIONS)
def test_the_help_of_every_option_gives_its_default(action):
    assert action.help
    assert action.help % vars(action)
    switch = action.nargs == 0 and action.default is False
    if not (action.required or switch or not action.option_strings):
        optional_file = action.default is None and action.help.startswith("also ")
        assert "default" in action.help or optional_file or action.dest in NONE_BY_NATURE


# Options without a default: their help explains the effect.
NONE_BY_NATURE = {"prompts", "examples", "csv", "html", "attach", "plain", "log"}


def test_help_shows_twelve_commands_and_those_for_other_servers(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    _, own, others = re.split(r"^commands.*:\n", capsys.readouterr().out, flags=re.MULTILINE)
    named = [[line.split()[0] for line in part.strip().splitlines()] for part in (own, others)]
    assert [*named[0], *named[1]] == [name for name in COMMANDS if " " not in name]
    assert len(named[0]) == 12
    assert len(named[1]) <= 3
    for command in COMMANDS.values():
        assert not command["summary"].endswith(".")
        module, _, function = command["run"].partition(".")
        assert f"def {function}(" in (FOLDER / f"{module}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ("pairs --tokens 9", "bench pairs --tokens 9"),
        ("gpu --minutes 2 --out x", "bench gpu --minutes 2 --out x"),
        ("counterexample --runs 40", "audit counterexample --runs 40"),
        ("export-site folder", "export site folder"),
        ("export-draft folder", "export draft folder"),
        ("export-drafter a b --layout dflash", "export drafter a b --layout dflash"),
        ("class-pack folder --language de", "export class-pack folder --language de"),
        ("datastore a.txt --out b", "train datastore a.txt --out b"),
    ],
)
def test_earlier_command_names_work_with_a_notice(earlier, now, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a.txt").touch()
    assert parsed(earlier) == parsed(now)
    old, new = earlier.split()[0], " ".join(now.split()[:2])
    assert capsys.readouterr().err == f"`{old}` is an earlier name of `{new}`.\n"


def test_words_that_name_no_command_are_refused(capsys):
    for words in ("nonsense", "", "heads"):
        with pytest.raises(SystemExit) as stopped:
            parsed(words)
        assert stopped.value.code == 2
    assert "there is no command 'nonsense'" in capsys.readouterr().err


def test_values_of_sampling_are_those_that_are_named_or_those_of_a_preset():
    own = run_settings(parsed("run x --top-k 5"))
    assert (own.preset, own.sampling) == ("own", Sampling(top_k=5))
    seeded = run_settings(parsed("run x --seed 5"))
    assert (seeded.preset, seeded.sampling.seed) == ("recommended", 5)
    assert run_settings(parsed("bench --sampling recommended")).preset == "recommended"
    assert run_settings(parsed("run x --sampling own")) == RunSettings()
    with pytest.raises(UserError, match="--sampling greedy sets --temperature, --top-p too"):
        run_settings(parsed("run x --sampling greedy --top-p 0.9 --temperature 1"))


def test_options_left_out_are_the_defaults(monkeypatch):
    assert run_settings(parsed("run x")) == RunSettings(preset="recommended")
    assert run_settings(parsed("bench")) == RunSettings()
    assert run_settings(parsed("bench --verification block")).verification == BLOCK
    assert run_settings(parsed("compare x")) == RunSettings()
    assert run_settings(parsed("bench"), "nothing") == RunSettings(method="nothing")
    for setting in fields(AppSettings):
        monkeypatch.delenv(setting.variable, raising=False)
    assert app_settings(parsed("app")) == AppSettings()


def test_options_become_settings():
    words = (
        "run x --method tree --policy constant --lookahead 3 --threshold 0.2 --nodes 5 --no-memory "
        "--no-fallback --no-baseline --max-new-tokens 9 --temperature 1 --top-k 4 --top-p 0.5 "
        "--repetition-penalty 2 --seed 7"
    )
    sampling = Sampling(1.0, 4, 0.5, 2.0, 7)
    assert run_settings(parsed(words)) == RunSettings(
        "tree", "constant", 3, 0.2, 5, False, False, False, max_new_tokens=9, sampling=sampling
    )
    words = "app --target a --draft b --store c --trained d --precision int8 --device cpu"
    options = parsed(f"{words} --threads 2 --host localhost --port 8000 --replay")
    models = {"target": "a", "draft": "b", "store": "c", "trained": "d"}
    assert app_settings(options) == AppSettings(
        **models,
        precision="int8",
        device="cpu",
        threads=2,
        host="localhost",
        port=8000,
        replay=True,
    )


def test_a_lane_takes_from_the_options_what_it_leaves_out():
    options = parsed("bench --policy heuristic --lookahead 5 --verification token")
    usual = RunSettings("ngram", "heuristic", 5, verification=TOKEN)
    assert lane_settings(options, "ngram") == usual
    assert lane_settings(options, "ngram:constant:2") == replace(
        usual, policy="constant", lookahead=2
    )
    assert lane_settings(options, "ngram:::block") == RunSettings(
        "ngram", "heuristic", 5, verification="block"
    )
    for lane in ("ngram:constant:x", "ngram:no-such", "ngram:constant:99"):
        with pytest.raises(UserError):
            lane_settings(options, lane)


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("audit --method ngram", "methods", "ngram"),
        ("audit", "methods", "all"),
        ("train draft --out x --words 99", "words", 99),
        ("train draft --out x", "words", 8192),
    ],
)
def test_earlier_names_of_options_still_work_and_are_not_shown(words, name, value):
    options = parsed(words)
    assert getattr(options, name) == value
    flag = next((word for word in words.split() if word in ("--method", "--words")), "")
    shown = PARSERS[options.command].format_help()
    assert not flag or f"{flag} " not in shown


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ("doctor --json", "URL"),
        ("doctor --plain 127.0.0.1:1", "URL"),
        ("audit --samples 3", "URL"),
        ("app --plain 127.0.0.1:1", "--attach"),
        ("run hi --at-once 3", "--prompts"),
        ("tune --bandwidth 60", "--sizes"),
    ],
)
def test_an_option_that_does_nothing_without_another_one_is_refused(words, needed, capsys):
    assert main(words.split()) == 1
    assert f" has no effect without {needed}." in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["run", ""], ["compare", " \n"], ["attach", "127.0.0.1:1", "--prompt", ""]]
)
def test_an_empty_prompt_is_refused_before_a_model_loads(words, capsys):
    with pytest.raises(SystemExit):
        parse(words)
    assert "the prompt is empty" in capsys.readouterr().err


class Page:
    def __init__(self, *, taken: bool = False) -> None:
        self.taken, self.launched, self.closed = taken, {}, False

    def launch(self, **options):
        if self.taken:
            raise OSError
        self.launched = options
        return None, "http://here", None

    def block_thread(self) -> None:
        self.closed = True


def serve(monkeypatch, page, words=""):
    monkeypatch.setattr(app_command, "make_page", lambda _: page)
    monkeypatch.setattr(app_command.Studio, "start", lambda _: None)
    return main(["app", "--no-browser", *words.split()])


def test_app_serves_the_page_until_it_is_closed(monkeypatch, capsys):
    page = Page()
    assert serve(monkeypatch, page, "--host 127.0.0.2 --port 7999 --replay") == 0
    assert page.launched["server_name"] == "127.0.0.2"
    assert page.launched["server_port"] == 7999
    assert page.launched["inbrowser"] is False
    assert page.closed
    assert "http://here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "variable", "target"),
    [
        ("", "", "auto"),
        ("--target tiny", "", "tiny"),
        ("", "tiny", "tiny"),
        ("--replay", "", AppSettings().target),
    ],
)
def test_app_chooses_a_target_if_none_is_named(monkeypatch, words, variable, target):
    monkeypatch.setenv("SPECDEMO_TARGET", variable)
    studios = []
    monkeypatch.setattr(app_command, "make_page", lambda studio: studios.append(studio) or Page())
    monkeypatch.setattr(app_command.Studio, "start", lambda _: None)
    assert main(["app", "--no-browser", *words.split()]) == 0
    assert studios[0].settings.target == target


def test_app_says_when_its_port_is_taken(monkeypatch, capsys):
    assert serve(monkeypatch, Page(taken=True), "--port 7999") == 1
    assert "Port 7999 is taken." in capsys.readouterr().err


@pytest.mark.parametrize("host", ["256.1.1.1", "192.0.2.1", "no.such.host.invalid"])
def test_app_names_an_address_that_it_cannot_use(host, monkeypatch, capsys):
    assert serve(monkeypatch, Page(), f"--host {host}") == 1
    assert f"cannot be served at the address {host}" in capsys.readouterr().err


def test_app_says_that_it_already_runs(monkeypatch, capsys):
    answer = httpx.Response(200, json={"status": "ready"})
    monkeypatch.setattr(httpx, "get", lambda *_, **__: answer)
    assert serve(monkeypatch, Page(taken=True), "--port 7999 --desktop") == 1
    told = capsys.readouterr().err
    assert "specdemo already runs at http://127.0.0.1:7999." in told
    assert "--port 8000" in told


def test_without_torch_a_command_says_so_and_any_other_missing_module_is_an_error(
    monkeypatch, capsys
):
    missing = iter(["torch", "rich"])

    def make_page(_studio):
        raise ModuleNotFoundError(name=next(missing))

    monkeypatch.setattr(app_command, "make_page", make_page)
    assert main(["app"]) == 1
    assert "Live runs need torch" in capsys.readouterr().err
    with pytest.raises(ModuleNotFoundError):
        main(["app"])


def test_a_command_imports_its_own_file_and_no_other():
    code = (
        "import sys; from specdemo.cli.parser import main; main(['replay', sys.argv[1]]);"
        "loaded = [name for name in sys.modules if name.startswith('specdemo.cli.commands.')];"
        "assert loaded == ['specdemo.cli.commands.run'], loaded;"
        "assert 'numpy' not in sys.modules"
    )
    python("-c", code, RECORDED)


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("--method plain", {"method": "nothing"}),
        ("--method composite", {"method": "auto"}),
        ("--method medusa_static", {"method": "medusa", "policy": "constant"}),
        ("--method tree --policy learned", {"method": "tree", "policy": "cost"}),
    ],
)
def test_run_settings_replaces_names_of_earlier_versions_and_says_so(words, settings, capsys):
    made = run_settings(parsed(f"run x {words}"))
    assert {name: made.value(name) for name in settings} == settings
    assert f"{words.split()[-1]} is now" in capsys.readouterr().err


def test_a_policy_that_a_method_does_not_implement_is_refused_where_it_is_named_for_it():
    with pytest.raises(UserError, match=r"heuristic.*constant, cost"):
        run_settings(parsed("run x --method tree --policy heuristic"))
    with pytest.raises(UserError, match="Tree"):
        lane_settings(parsed("bench"), "tree:confidence")
    assert run_settings(parsed("compare x --policy heuristic"), "tree").policy == "heuristic"
