"""Trains a drafter for a target, or the `learned` lookahead policy."""

from __future__ import annotations

import argparse
from pathlib import Path

from specdemo.cli import console
from specdemo.cli.options import add_models, add_option, app_settings, check_folders
from specdemo.drafters.methods import TRAINED

LOOKAHEAD = "the `learned` policy, from traces of runs with a long constant lookahead"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The kinds, each with what it is trained from."""
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    for kind, trained in TRAINED.items():
        about = f"Train {trained.about}."
        _add_training(kinds.add_parser(kind, help=trained.about, description=about))
    lookahead = kinds.add_parser("lookahead", help=LOOKAHEAD, description=f"Train {LOOKAHEAD}.")
    add_option(
        lookahead,
        "--traces",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE",
        about="traces of runs, as `bench --traces` saves them",
    )
    add_option(lookahead, "--out", type=Path, required=True, metavar="FILE", about="file to write")


def _add_training(parser: argparse.ArgumentParser) -> None:
    add_option(
        parser,
        "--form",
        default="own",
        metavar="NAME",
        about="what the drafter computes: `own`, or what `export-drafter` writes for other engines: `eagle3` for feature, "
        "`dflash` for block and jet",
    )
    for name, about in (
        ("--prompts", "prompts that the target answers: JSON lines with `prompt` or `turns`"),
        ("--answers", "answers that were generated earlier (.npz)"),
    ):
        add_option(
            parser, name, type=Path, nargs="*", default=[], metavar="FILE", about=f"{about}; none by default"
        )  # fmt: skip
    add_option(
        parser,
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        about="folder to write the drafter to",
    )
    add_option(
        parser,
        "--work",
        type=Path,
        metavar="FOLDER",
        about="folder where answers, hidden states and checkpoints are kept for all kinds; by default `training` "
        "in the cache folder",
    )
    add_option(
        parser,
        "--init",
        type=Path,
        metavar="FOLDER",
        about="draft model to start from, or to build on; none by default, not for medusa and exit. A feature drafter "
        "does without, or goes on from one of its kind",
    )
    add_option(parser, "--minutes", type=float, default=45.0, metavar="X", about="time to train")
    for name, default, about in (
        ("--layers", 4, "layers of a draft model"),
        ("--inner", 2560, "inner width of a feature drafter without a draft model"),
        ("--depth", 5, "tokens that medusa, block and jet draft at once"),
        ("--max-answers", 7000, "answers to use, at most; 0 takes all that fit"),
        ("--seed", 0, "seed of the random numbers"),
    ):
        add_option(parser, name, type=int, default=default, metavar="N", about=about)
    add_option(
        parser,
        "--vocabulary",
        dest="words",
        type=int,
        default=8192,
        metavar="N",
        about="tokens of the drafter's reduced vocabulary",
        earlier=("--words",),
    )
    add_option(
        parser,
        "--learning-rate",
        type=float,
        default=1.5e-3,
        metavar="X",
        about="highest step size",
    )
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    """Train what `options.kind` names."""
    return _train_lookahead(options) if options.kind == "lookahead" else _train_drafter(options)


def _train_lookahead(options: argparse.Namespace) -> int:
    check_folders(options.out)
    from specdemo.training.lookahead import run_training

    with console.reporting() as report:
        numbers = run_training(options.traces, None, options.out, report)
    for name, value in numbers.items():
        console.note(f"{name}: {value}")
    return 0


def _train_drafter(options: argparse.Namespace) -> int:
    from specdemo.training.options import TrainOptions
    from specdemo.training.package import title
    from specdemo.training.train import train

    settings = app_settings(options)
    asked = TrainOptions(
        kind=options.kind,
        target=settings.target,
        prompts=tuple(options.prompts),
        answers=tuple(options.answers),
        out=options.out,
        work_dir=options.work or settings.cache_dir / "training",
        minutes=options.minutes,
        init=options.init,
        layers=options.layers,
        words=options.words,
        inner=options.inner,
        depth=options.depth,
        form=options.form,
        learning_rate=options.learning_rate,
        max_answers=options.max_answers,
        seed=options.seed,
        device=settings.device,
        precision=settings.precision,
        cache_dir=settings.cache_dir,
    )
    with console.reporting() as report:
        trained = train(asked, report)
    console.note(f"Wrote {trained.out}, {trained.parameters / 1e6:.1f} million parameters.")
    for name, value in trained.results.items():
        console.note(f"{title(name)}: {value:.4g}")
    return 0
