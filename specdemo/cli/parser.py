"""The command line: python -m specdemo COMMAND. Arguments and dispatch; the commands are in `commands`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specdemo import __version__
from specdemo.drafters.methods import TRAINED
from specdemo.errors import UserError
from specdemo.scenarios.batch import AT_ONCE
from specdemo.settings import POLICIES, PRECISIONS, AppSettings, RunSettings, Sampling


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. returns: 0, 1 for an error that was told, 130 when interrupted"""
    from specdemo.cli import commands

    options = build_parser().parse_args(arguments)
    try:
        return getattr(commands, options.command.replace("-", "_"))(options)
    except UserError as error:
        print(error.message, error.unharmed, error.advice, sep="\n", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output has gone
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(
        prog="specdemo", description="Speculative decoding, visible, provable and fast."
    )
    parser.add_argument("--version", action="version", version=f"specdemo {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)

    run = commands.add_parser("run", help="answer a prompt and colour what became of each token")
    run.add_argument("prompt", nargs="?", help="or --prompts FILE")
    run.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help="answer all of them together: one a line, or JSON lines with `prompt` or `turns`; no baseline",
    )
    run.add_argument(
        "--at-once", type=int, default=AT_ONCE, metavar="N", help="of --prompts, at most N together"
    )
    run.add_argument("--method", default=RunSettings().method)
    run.add_argument("--no-baseline", action="store_true", help="do not run plain decoding first")
    run.add_argument(
        "--json", action="store_true", help="print the trace as JSON lines; answers with --prompts"
    )
    run.add_argument("--save", type=Path, metavar="FILE", help="also write the trace to a file")

    compare = commands.add_parser("compare", help="plain decoding against methods, as a table")
    compare.add_argument("prompt")
    compare.add_argument(
        "--methods", default="", metavar="A,B", help="all available ones by default"
    )
    compare.add_argument("--repeat", type=int, default=3, help="runs of each lane, in turn")
    for command, what in (
        (run, "goes on from this file and is written back"),
        (compare, "is read from this file"),
    ):
        command.add_argument(
            "--online-weights", type=Path, metavar="FILE", help=f"what `online` has learned {what}"
        )

    bench = commands.add_parser("bench", help="measure lanes on a suite of prompts")
    bench.add_argument(
        "--suite", type=Path, metavar="FILE", help="JSON lines; the bundled examples by default"
    )
    bench.add_argument("--limit", type=int, metavar="N", help="at most N prompts a task")
    bench.add_argument(
        "--lanes",
        default="draft_model:constant:4,draft_model:confidence,ngram",
        metavar="A,B",
        help="METHOD[:POLICY[:LOOKAHEAD]] beside plain decoding; `policies` for every lookahead policy "
        "against the best constant and the oracle, `methods` for every method, `trained` for those with trained "
        "weights; transformers[:assisted|:lookup], llama.cpp[:lookup] and floor, or `peers` for all of these",
    )
    bench.add_argument("--repeat", type=int, default=1, metavar="N", help="runs of the suite")
    bench.add_argument(
        "--concurrent",
        type=int,
        default=0,
        metavar="N",
        help="also N conversations at once against one after the other",
    )
    bench.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to a file")
    bench.add_argument("--html", type=Path, metavar="FILE", help="also write a report with charts")
    bench.add_argument("--readme", action="store_true", help="print the README's table instead")
    bench.add_argument("--traces", type=Path, metavar="FOLDER", help="also save every run's trace")
    bench.add_argument(
        "--first-turns", action="store_true", help="only the first turn of each prompt"
    )

    audit = commands.add_parser(
        "audit", help="prove on this machine that methods do not change what the target says"
    )
    audit.add_argument("--method", default="all", metavar="A,B", help="all by default")
    audit.add_argument("--runs", type=int, help="seeded runs a method and condition")
    audit.add_argument("--tokens", type=int, help="new tokens a run")
    audit.add_argument("--json", action="store_true", help="print the result as JSON")
    _add_models(audit)

    counterexample = commands.add_parser(
        "counterexample", help="why a scheduler may stop early, and must not look back"
    )
    counterexample.add_argument("--runs", type=int, default=4_000)

    datastore = commands.add_parser(
        "datastore", help="build a datastore for `retrieval` from text files and saved runs"
    )
    datastore.add_argument("files", type=Path, nargs="*")
    datastore.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    datastore.add_argument(
        "--prompts", type=Path, metavar="FILE", help="one prompt a line: store the target's answers"
    )
    datastore.add_argument(
        "--examples",
        type=Path,
        metavar="FILE",
        help="a suite whose prompts are answered several times",
    )
    datastore.add_argument("--licence", default="that of its sources")
    _add_models(datastore)

    for command in (run, compare, bench):
        _add_models(command)
        _add_run_settings(command)

    commands.add_parser("methods", help="every drafting method, and what it needs")
    commands.add_parser("models", help="the catalogue")
    commands.add_parser("doctor", help="what this machine can do, and what to do about the rest")

    record = commands.add_parser(
        "record", help="record the runs that the page plays, as assets/runs/index.json lists them"
    )
    record.add_argument("names", nargs="*", help="of the index; all without any")
    record.add_argument("--folder", type=Path, help="another folder with an index.json")
    record.add_argument("--takes", type=int, default=4)
    _add_models(record)
    replay = commands.add_parser("replay", help="show a saved trace; needs no model and no torch")
    replay.add_argument("file", type=Path)
    replay.add_argument("--json", action="store_true", help="print the metrics as JSON")

    export = commands.add_parser(
        "export", help="a saved trace as a table, or as one HTML file that plays it; needs no torch"
    )
    export.add_argument("file", type=Path)
    export.add_argument("--csv", type=Path, metavar="FILE", help="one row for each token")
    export.add_argument("--html", type=Path, metavar="FILE", help="opens without a network")
    site = commands.add_parser(
        "export-site", help="recorded runs, lab and lessons as static files for any web server"
    )
    site.add_argument("folder", type=Path)

    export = commands.add_parser(
        "export-draft", help="write a compact draft as an ordinary transformers model"
    )
    export.add_argument("out", type=Path)
    _add_models(export)

    train = commands.add_parser("train", help="train a drafter for a target")
    kinds = train.add_subparsers(dest="kind", required=True)
    for kind, trained in TRAINED.items():
        _add_training(kinds.add_parser(kind, help=trained.about))
    lookahead = kinds.add_parser(
        "lookahead", help="the `learned` policy, from traces of runs with a long constant lookahead"
    )
    lookahead.add_argument("--traces", type=Path, nargs="+", required=True, metavar="FILE")
    lookahead.add_argument("--out", type=Path, required=True, metavar="FILE")
    return parser


def _add_training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prompts",
        type=Path,
        nargs="*",
        default=[],
        metavar="FILE",
        help="JSON lines with `prompt` or `turns`",
    )
    parser.add_argument(
        "--answers",
        type=Path,
        nargs="*",
        default=[],
        metavar="FILE",
        help="answers generated earlier (.npz)",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument(
        "--work",
        type=Path,
        metavar="FOLDER",
        help="where answers, hidden states and checkpoints are kept, for all kinds",
    )
    parser.add_argument(
        "--init", type=Path, metavar="FOLDER", help="a drafter to go on from (not medusa, exit)"
    )
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--words", type=int, default=8192)
    parser.add_argument("--depth", type=int, default=5, help="tokens guessed at once")
    parser.add_argument("--learning-rate", type=float, default=1.5e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-answers", type=int, default=7000)
    _add_models(parser)


def _add_models(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", help="catalogue name, hub id, local folder or GGUF file")
    parser.add_argument("--draft", help="the same; `none` for no draft")
    parser.add_argument("--store", help="folder of a datastore for `retrieval`; `none` for none")
    parser.add_argument(
        "--trained", help="folder of trained drafters, a folder a kind; `none` for none"
    )
    parser.add_argument("--precision", choices=PRECISIONS)
    parser.add_argument("--device", help="auto, cpu or cuda")
    parser.add_argument("--threads", type=int, help="0 uses every core")


def _add_run_settings(parser: argparse.ArgumentParser) -> None:
    run, sampling = RunSettings(), Sampling()
    parser.add_argument("--system", default="", help="system prompt")
    parser.add_argument("--policy", choices=POLICIES, default=run.policy)
    parser.add_argument("--lookahead", type=int, default=run.lookahead)
    parser.add_argument("--threshold", type=float, default=run.threshold)
    parser.add_argument("--nodes", type=int, default=run.nodes, help="most nodes of a tree")
    parser.add_argument(
        "--no-memory", action="store_true", help="learn nothing from one run for the next"
    )
    parser.add_argument("--no-fallback", action="store_true", help="go on drafting while it loses")
    parser.add_argument("--max-new-tokens", type=int, default=run.max_new_tokens)
    parser.add_argument("--temperature", type=float, default=sampling.temperature)
    parser.add_argument("--top-k", type=int, default=sampling.top_k)
    parser.add_argument("--top-p", type=float, default=sampling.top_p)
    parser.add_argument("--repetition-penalty", type=float, default=sampling.repetition_penalty)
    parser.add_argument("--seed", type=int, default=sampling.seed)


def app_settings(options: argparse.Namespace) -> AppSettings:
    """Settings of the program from options, then environment, then defaults."""
    names = ("target", "draft", "store", "trained", "precision", "device", "threads")
    return AppSettings.from_environment(**{name: getattr(options, name) for name in names})


def run_settings(options: argparse.Namespace, method: str) -> RunSettings:
    """Settings of a run from options."""
    sampling = Sampling(
        options.temperature, options.top_k, options.top_p, options.repetition_penalty, options.seed
    )
    return RunSettings(
        method=method,
        policy=options.policy,
        lookahead=options.lookahead,
        threshold=options.threshold,
        nodes=options.nodes,
        memory=not options.no_memory,
        fallback=not options.no_fallback,
        max_new_tokens=options.max_new_tokens,
        sampling=sampling,
    ).checked()


def lane_settings(options: argparse.Namespace, lane: str) -> RunSettings:
    """Settings of a lane written METHOD[:POLICY[:LOOKAHEAD]]; what it leaves out comes from the options."""
    method, _, rest = lane.partition(":")
    policy, _, lookahead = rest.partition(":")
    settings = run_settings(options, method)
    if lookahead and not lookahead.isdigit():
        raise UserError(f"The lane {lane!r} is not METHOD[:POLICY[:LOOKAHEAD]].")
    return replace(
        settings,
        policy=policy or settings.policy,
        lookahead=int(lookahead) if lookahead else settings.lookahead,
    ).checked()
