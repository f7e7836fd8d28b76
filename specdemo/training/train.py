"""Trains a drafter for a Llama target, from prompts to a folder that loads.

Answers, hidden states, training, evaluation, files: each step keeps what it has done, so that the same
call made again goes on where the last one stopped. Answers and hidden states serve every kind of drafter.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from specdemo.config.errors import Phrase, UserError
from specdemo.files.progress import Progress, ProgressCallback, megabytes, silent
from specdemo.files.sources import ModelFiles, resolve
from specdemo.files.store import check_space, make_folder, reporting_full_disk
from specdemo.models.devices import choose_device
from specdemo.models.loading import load_model, pack_as
from specdemo.models.networks.compact_files import HEAD, read_embedding, read_tensor
from specdemo.models.tokenizers import load_tokenizer, stop_ids
from specdemo.training.card import Card, describe_machine
from specdemo.training.options import TrainOptions
from specdemo.training.package import package, read_llama_config

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import LlamaConfig

    from specdemo.training.data import Answer, Prompt, Row
    from specdemo.training.teacher import HiddenStates
    from specdemo.training.trainer import Trainer


@dataclass(frozen=True, slots=True)
class TrainReport:
    """What came out.

    results: on held-out prompts, as in the card
    losses, checks: (step, loss): moving average of the training, and on held-out texts
    resumed_at: the step that an earlier call had reached, 0 for a fresh start
    """

    out: Path
    card: Card
    parameters: int
    results: dict[str, float]
    losses: tuple[tuple[int, float], ...]
    checks: tuple[tuple[int, float], ...]
    resumed_at: int


def train(options: TrainOptions, progress: ProgressCallback = silent) -> TrainReport:
    """Answer, cache, train, evaluate and write a drafter; interrupted, the same call continues."""
    import torch

    from specdemo.training.chain import Shared
    from specdemo.training.data import from_prompts_too, hold_out
    from specdemo.training.dflash import DFlashNetwork
    from specdemo.training.feature_network import FeatureNetwork
    from specdemo.training.kinds import alone_task, dflash_task, make_task
    from specdemo.training.trainer import Trainer, rounding, trained_state

    device = choose_device(options.checked().device)
    packed = pack_as(options.precision, options.device) if options.alone else None
    files = resolve(options.target, options.cache_dir, progress, packed)
    config = read_llama_config(files.folder, alone=options.alone)
    torch.manual_seed(options.seed)
    make_folder(options.work_dir)
    with reporting_full_disk(Phrase("disk.while_training")):
        work = options.work_dir / _digest(_data_facts(options, files))
        make_folder(work)
        gather = _gather_alone if options.alone else _gather
        answers, rows, hidden, embedding = gather(options, config, files, device, work, progress)
        word_ids = torch.from_numpy(hidden.word_mass.argsort()[::-1][: options.words].copy())
        word_ids = word_ids.sort().values.to(device)
        kept, held = hold_out(rows, options.held_out_prompts, options.seed)
        if not kept:
            raise UserError("training.few_answers")
        shared = Shared(
            hidden, embedding, word_ids, options.batch_tokens, options.seed,
            None if config.tie_word_embeddings else read_tensor(files.folder, HEAD).to(device),
        )  # fmt: skip
        if options.alone:
            kept = from_prompts_too(kept)
            if options.form == "dflash":
                task, extra, began_as = dflash_task(options, config, files.folder, shared)
            else:
                task, extra, began_as = alone_task(options, config, files.folder, shared, kept)
        else:
            task, extra, began_as = make_task(options, config, files.folder, shared)
        trainer = Trainer(
            options, task, work / f"{options.kind}-{_digest(_train_facts(options))}.pt"
        )
        trainer.fit(kept, held, progress)
        progress(Progress("evaluate", None, f"{len(held)} answers"))
        task.module.eval()
        with rounding(trainer.parameters):
            results = task.results(held) if held else {}
        card = Card(
            files.name, options.precision, options.kind, began_as, len(word_ids),
            _data_lines(options, answers), trainer.tokens_seen, trainer.step,
            round(trainer.seconds / 60, 2), options.seed, results, _recipe(options, trainer),
            tuple(trainer.losses), tuple(trainer.checks), describe_machine(str(device)),
        )  # fmt: skip
        module = task.module
        folds = isinstance(module, FeatureNetwork | DFlashNetwork)
        state = module.folded() if folds else trained_state(module)
        package(
            state, word_ids.cpu(), files.folder, options.out, card, extra, alone=options.alone
        )  # fmt: skip
    progress(Progress("evaluate", 1.0, f"written to {options.out}"))
    return TrainReport(
        options.out, card, sum(tensor.numel() for tensor in state.values()), results,
        tuple(trainer.losses), tuple(trainer.checks), trainer.resumed_at,
    )  # fmt: skip


Gathered: TypeAlias = "tuple[list[Answer], list[Row], HiddenStates, Tensor]"
"""Answers, the texts to train on, the target's states over them, and its embedding (V, H)."""


def _gather(
    options: TrainOptions,
    config: LlamaConfig,
    files: ModelFiles,
    device: torch.device,
    work: Path,
    progress: ProgressCallback,
) -> Gathered:
    """Answers that were given and the target's own to the prompts, and its states over all of them."""
    from specdemo.training.data import read_answers
    from specdemo.training.teacher import answer_prompts, load_teacher

    progress(Progress("load", None, files.name))
    teacher = load_teacher(files.folder, options.precision, device)
    paths = list(options.answers)
    if options.prompts:
        paths += answer_prompts(
            teacher, load_tokenizer(files), _prompts(options), work / "answers",
            max_answer_tokens=options.max_answer_tokens, seed=options.seed, progress=progress,
        )  # fmt: skip
    answers = read_answers(paths, teacher.config.vocab_size)
    rows, hidden = _prepare(options, config, teacher, answers, work, progress)
    return answers, rows, hidden, teacher.model.embed_tokens.weight.detach()


def _gather_alone(
    options: TrainOptions,
    config: LlamaConfig,
    files: ModelFiles,
    device: torch.device,
    work: Path,
    progress: ProgressCallback,
) -> Gathered:
    """The same through the program's own passes, which keep the states while the target answers."""
    from specdemo.training.answers import Asked, answer_prompts, read_shards
    from specdemo.training.teacher import HiddenStates, layers_to_read, published_layers

    choose = layers_to_read if options.form == "own" else published_layers
    layers, paths = choose(config.num_hidden_layers), list(options.answers)
    if options.prompts:
        most = int(options.max_disk_gb * 1e9) // HiddenStates.bytes_per_position(
            config.hidden_size, layers
        )
        loaded = load_model(files, options.precision, str(device), progress)
        tokenizer = load_tokenizer(files)
        asked = Asked(
            _prompts(options), layers, stop_ids(loaded.model, tokenizer), options.max_answer_tokens,
            most, options.seed,
        )  # fmt: skip
        paths += answer_prompts(loaded.decoder, tokenizer, asked, work / "texts", progress)
    embedding = read_embedding(files.folder).to(device)
    answers, rows, hidden = read_shards(paths, layers, config.vocab_size)
    return answers, rows, hidden, embedding


def _prompts(options: TrainOptions) -> list[Prompt]:
    """Prompts to answer, at random where there are more than enough."""
    import numpy as np

    from specdemo.training.data import read_prompts

    prompts = read_prompts(options.prompts)
    if not options.max_answers:
        return prompts
    order = np.random.default_rng(options.seed).permutation(len(prompts))
    return [prompts[index] for index in order[: options.max_answers]]


def _prepare(
    options: TrainOptions,
    config: LlamaConfig,
    teacher: Any,
    answers: list[Answer],
    work: Path,
    progress: ProgressCallback,
) -> tuple[list[Row], HiddenStates]:
    """Rows and the target's hidden states over them, within the bound on disk."""
    from specdemo.training.data import choose, to_rows
    from specdemo.training.teacher import HiddenStates, cache_hidden, layers_to_read

    layers = layers_to_read(config.num_hidden_layers)
    size = HiddenStates.bytes_per_position(config.hidden_size, layers)
    chosen = choose(
        answers, max_answers=options.max_answers,
        max_positions=int(options.max_disk_gb * 1e9) // size, seed=options.seed,
    )  # fmt: skip
    rows = to_rows(chosen, config.max_position_embeddings)
    if not rows:
        raise UserError("training.few_answers_for_disk")
    facts = [options.max_answers, options.max_disk_gb, options.seed, *layers]
    folder = work / f"hidden-{_digest(facts)}"
    if not folder.is_dir():
        needed = size * sum(len(row.token_ids) for row in rows)
        check_space(work, needed, Phrase("disk.hidden_states", size=megabytes(needed)))
    return rows, cache_hidden(teacher, rows, layers, folder, progress)


def _data_facts(options: TrainOptions, files: ModelFiles) -> list[object]:
    """What the answers and hidden states depend on."""
    inputs = [[path.name, path.stat().st_size] for path in (*options.prompts, *options.answers)]
    amount = [options.max_answers, options.max_answer_tokens] if options.prompts else []
    where = files.revision or str(files.folder)
    form = [] if options.form == "own" else [options.form]  # which states are kept
    return [files.name, where, options.precision, inputs, amount, options.seed, *form]


def _train_facts(options: TrainOptions) -> list[object]:
    """What weights and optimizer depend on; not the time, so that training can be made longer."""
    names = (
        "layers",
        "words",
        "inner",
        "depth",
        "batch_tokens",
        "learning_rate",
        "held_out_prompts",
        "seed",
        "max_answers",
        "max_disk_gb",
    )
    facts = [*(getattr(options, name) for name in names), str(options.init or "")]
    return facts if options.form == "own" else [*facts, options.form]


def _digest(facts: list[object]) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


def _data_lines(options: TrainOptions, answers: list[Answer]) -> tuple[str, ...]:
    """A line for each file that was used, with the licences that its rows name."""
    lines = []
    for path in options.prompts:
        rows = [
            json.loads(line)
            for line in path.read_text(encoding="utf-8").splitlines()
            if line.strip()
        ]
        licences = sorted({str(row["licence"]) for row in rows if "licence" in row})
        lines.append(
            f"prompts of {path.name}: {len(rows):,} ({', '.join(licences) or 'licence not stated'})"
        )
    lines += [f"answers given in {path.name}" for path in options.answers]
    tokens = sum(len(answer.answer_ids) for answer in answers)
    return (*lines, f"together {len(answers):,} answers, {tokens:,} tokens; held out by prompt")


def _recipe(options: TrainOptions, trainer: Trainer) -> dict[str, float | str]:
    """What a reader needs to do it again."""
    from specdemo.training.kinds import ALONE, LOSSES
    from specdemo.training.trainer import BETAS, LAST_RATE, WEIGHT_DECAY

    recipe: dict[str, float | str] = {
        "loss": LOSSES["jet"]
        if options.form == "dflash"
        else ALONE
        if options.alone
        else LOSSES[options.kind],
        "optimizer": f"AdamW, betas {BETAS[0]} and {BETAS[1]}, weight decay {WEIGHT_DECAY}",
        "learning rate": f"{options.learning_rate:g}, {options.warm_up_steps} steps of warm-up, "
        f"linear decay to {LAST_RATE:.0%}",
        "batch": f"{options.batch_tokens} tokens",
        "arithmetic": "bf16 autocast over fp32 weights; in the last "
        f"{options.quantised_share:.0%} of the time weights are rounded to 4 bits in every pass",
    }
    if trainer.stopped_early:
        recipe["stopped early"] = f"after {trainer.done:.0%} of the time"
    return recipe
