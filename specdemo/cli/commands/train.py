"""Train drafters and build datastores."""

from __future__ import annotations

import argparse
from dataclasses import fields

from specdemo.cli import console
from specdemo.cli.options import app_settings, given_values
from specdemo.config.errors import UserError

MODEL_SETTINGS = ("target", "device", "precision", "cache_dir")


def run(options: argparse.Namespace) -> int:
    from specdemo.training.options import TrainOptions
    from specdemo.training.package import title
    from specdemo.training.train import train

    settings = app_settings(options)
    given = given_values(options, fields(TrainOptions))
    given |= {"prompts": tuple(options.prompts), "answers": tuple(options.answers)}
    given |= {name: getattr(settings, name) for name in MODEL_SETTINGS}
    given["work_dir"] = options.work or settings.cache_dir / "training"
    with console.reporting() as report:
        trained = train(TrainOptions(**given), report)
    console.note(f"Wrote {trained.out}, {trained.parameters / 1e6:.1f} million parameters.")
    for name, value in trained.card.results.items():
        console.note(f"{title(name)}: {value:.4g}")
    return 0


def run_datastore(options: argparse.Namespace) -> int:
    from specdemo.session.text import read_suite
    from specdemo.training.datastore import build, build_from_prompts, check_sources

    if bool(options.files) == bool(options.prompts):
        raise UserError("cli.datastore_source")
    check_sources(options.files, options.prompts, options.out)
    examples = read_suite(options.examples) if options.examples else []
    pair, out, licence = console.open_studio(options).pair, options.out, options.licence
    with console.reporting() as report:
        if options.prompts:
            again = [item.turns[0] for item in examples]
            build_from_prompts(options.prompts, pair, out, report, examples=again, licence=licence)
        else:
            name = pair.target.info.name
            build(options.files, pair.tokenizer, name, out, report, licence=licence)
    console.note(f"Wrote {out}.")
    return 0
