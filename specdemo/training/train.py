"""Trains a drafter for a Llama target, from prompts to a folder that loads.

Answers with hidden states, training, evaluation, files: each step stores its results, so that the same call made
again continues where the last one stopped. Answers and hidden states serve every kind of drafter.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from specdemo.config.errors import Phrase, UserError
from specdemo.config.settings import AppSettings
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.files.sources import ModelFiles, resolve
from specdemo.files.store import make_folder, reporting_full_disk
from specdemo.models.devices import choose_device, training_dtype
from specdemo.models.loading import load_model, precision_of
from specdemo.models.networks.folders import HEAD, read_tensor
from specdemo.models.networks.registry import stored_states
from specdemo.models.pair import model_files
from specdemo.models.tokenizers import load_tokenizer, stop_ids
from specdemo.session.loaded import machine_name
from specdemo.session.text import prompt_rows
from specdemo.trace.metrics import REPEATED_SHARE, repeated_share
from specdemo.training.answers import AnswerWriter, given_texts, new_texts, write_shards
from specdemo.training.data import (
    Answer,
    HiddenStates,
    Row,
    from_prompts_too,
    hold_out,
    read_answers,
    read_prompts,
    read_shards,
    states_path,
)
from specdemo.training.options import TrainOptions
from specdemo.training.package import Card, check_target, package, read_llama_config
from specdemo.training.recipes import RECIPES, loss_of, network_facts
from specdemo.training.trainer import BETAS, LAST_RATE, WEIGHT_DECAY, Start, Trainer, rounding

if TYPE_CHECKING:
    from transformers import LlamaConfig, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class TrainReport:
    """Result of a training. resumed_at: step that an earlier call had reached, 0 for a fresh start"""

    out: Path
    card: Card
    parameters: int
    resumed_at: int


def train(options: TrainOptions, progress: ProgressCallback = silent) -> TrainReport:
    """Gather answers, train, evaluate and write a drafter; after an interruption the same call continues."""
    device, network = choose_device(options.checked().device), options.network
    loaded = AppSettings(
        precision=options.precision, device=options.device, cache_dir=options.cache_dir
    )
    answering = model_files(options.target, loaded, progress)
    options = replace(options, precision=precision_of(answering, options.precision))
    files = answering
    if not network.own_layer:  # which starts as layers of the target, unquantised
        files = resolve(options.target, options.cache_dir, progress)
    config = read_llama_config(files.folder, own_layer=network.own_layer)
    if options.init:
        check_target(options.init, files.name, config.to_dict())
    if network.kind == "draft" and options.layers > config.num_hidden_layers:
        raise UserError("training.layers", most=config.num_hidden_layers, count=options.layers)
    torch.manual_seed(options.seed)
    make_folder(options.work_dir)
    with reporting_full_disk(Phrase("disk.while_training")):
        work = options.work_dir / _digest(_data_facts(options, files))
        make_folder(work)
        answers, rows, hidden = _gather(options, config, answering, device, work, progress)
        rows = _worth_learning(answers, rows, load_tokenizer(files))
        word_ids = torch.from_numpy(hidden.word_mass.argsort()[::-1][: options.words].copy())
        word_ids = word_ids.sort().values.to(device)
        kept, held = hold_out(rows, options.held_out_prompts, options.seed)
        if not kept:
            raise UserError("training.few_answers")
        if network.own_layer:
            kept = from_prompts_too(kept)
        embedding, head = _matrices(config, files.folder, device)
        start = Start(options, config, files.folder, kept, hidden, embedding, word_ids, head)
        task, layers = RECIPES[network.recipe](start)
        checkpoint = work / f"{options.kind}-{_digest(_train_facts(options))}.pt"
        trainer = Trainer(options, task, checkpoint)
        trainer.fit(kept, held, progress)
        progress(Progress("evaluate", None, f"{len(held)} answers"))
        task.module.eval()
        with rounding(trainer.parameters):
            results = task.results(held) if held else {}
        card = Card(
            files.name, options.precision, options.kind, layers, len(word_ids),
            _data_lines(options, answers), trainer.tokens_seen, trainer.step,
            round(trainer.seconds / 60, 2), options.seed, results, _recipe_lines(options, trainer),
            tuple(trainer.losses), tuple(trainer.checks), machine_name(str(device)),
        )  # fmt: skip
        state = task.weights()
        package(state, word_ids.cpu(), files.folder, options.out, card, network_facts(task))
    progress(Progress("evaluate", 1.0, f"written to {options.out}"))
    parameters = sum(tensor.numel() for tensor in state.values())
    return TrainReport(options.out, card, parameters, trainer.resumed_at)


def _matrices(config: LlamaConfig, folder: Path, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the target's embedding and its head, (V, H) each; they are one matrix if the head is tied."""
    embedding = read_tensor(folder).to(device, training_dtype(device))
    if config.tie_word_embeddings:
        return embedding, embedding
    return embedding, read_tensor(folder, HEAD).to(device, training_dtype(device))


def _gather(
    options: TrainOptions,
    config: LlamaConfig,
    files: ModelFiles,
    device: torch.device,
    work: Path,
    progress: ProgressCallback,
) -> tuple[list[Answer], list[Row], HiddenStates]:
    """Return answers, the texts to train on, and the target's states over them.

    The target answers the prompts, and reads the given answers that have no states next to them.
    """
    layers = stored_states(config.num_hidden_layers, options.form)
    room = int(options.max_disk_gb * 1e9) // (2 * config.hidden_size * len(layers))
    paths = [path for path in options.answers if states_path(path).is_file()]
    given = read_answers([path for path in options.answers if path not in paths], config.vocab_size)
    # Both come in random order, so the first ones are a random selection.
    order = np.random.default_rng(options.seed).permutation(len(given))
    given = [given[index] for index in order[: options.max_answers or None]]
    prompts = read_prompts(options.prompts)
    if prompts or given:
        target = load_model(files, options.precision, str(device), progress)
        tokenizer, most = load_tokenizer(files), options.max_answer_tokens
        writer = AnswerWriter(target.decoder, layers, stop_ids(target.model, tokenizer), most)
        new = new_texts(prompts, tokenizer, target.decoder, most, options.seed)
        count = min(len(prompts), options.max_answers or len(prompts))
        texts = chain(given_texts(given, target.decoder), islice(new, count))
        count += len(given)
        paths += write_shards(writer, texts, count, room, work / "texts", progress)
    return read_shards(paths, layers, config.vocab_size)


def _worth_learning(
    answers: list[Answer], rows: list[Row], tokenizer: PreTrainedTokenizerBase
) -> list[Row]:
    """Return the texts whose answers do not repeat themselves. A repetition is easy to draft, and a drafter learns little from it."""
    return [
        row
        for one, row in zip(answers, rows, strict=True)
        if repeated_share(str(tokenizer.decode(one.answer_ids))) <= REPEATED_SHARE
    ]


def _data_facts(options: TrainOptions, files: ModelFiles) -> list[object]:
    """Return everything that the answers and hidden states depend on."""
    inputs = [[path.name, path.stat().st_size] for path in (*options.prompts, *options.answers)]
    amount = [options.max_answers, options.max_answer_tokens] if options.prompts else []
    where = files.revision or str(files.folder)
    form = [] if options.form == "own" else [options.form]  # which states are stored
    return [files.name, where, options.precision, inputs, amount, options.seed, *form]


def _train_facts(options: TrainOptions) -> list[object]:
    """Return everything that weights and optimizer depend on, except the time, so that a training can be made longer."""
    names = (
        "layers", "words", "inner", "depth", "batch_tokens", "learning_rate", "held_out_prompts", "seed",
        "max_answers", "max_disk_gb",
    )  # fmt: skip
    facts = [*(getattr(options, name) for name in names), str(options.init or "")]
    return facts if options.form == "own" else [*facts, options.form]


def _digest(facts: list[object]) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


def _data_lines(options: TrainOptions, answers: list[Answer]) -> tuple[str, ...]:
    """Return a line for each file that was used, with the licences that its rows name."""
    lines = []
    for path in options.prompts:
        rows = prompt_rows(path)
        licences = sorted({str(row["licence"]) for row in rows if "licence" in row})
        licence = ", ".join(licences) or "licence not stated"
        lines.append(f"prompts of {path.name}: {len(rows):,} ({licence})")
    lines += [f"answers given in {path.name}" for path in options.answers]
    tokens = sum(len(answer.answer_ids) for answer in answers)
    return (*lines, f"together {len(answers):,} answers, {tokens:,} tokens; held out by prompt")


def _recipe_lines(options: TrainOptions, trainer: Trainer) -> dict[str, float | str]:
    """Return everything that a reader needs to repeat the training, by name."""
    lines: dict[str, float | str] = {
        "loss": loss_of(options.network.recipe),
        "optimizer": f"AdamW, betas {BETAS[0]} and {BETAS[1]}, weight decay {WEIGHT_DECAY}",
        "learning rate": f"{options.learning_rate:g}, {options.warm_up_steps} steps of warm-up, "
        f"linear decay to {LAST_RATE:.0%}",
        "batch": f"{options.batch_tokens} tokens",
        "arithmetic": f"{training_dtype(trainer.task.start.device)} products of float32 weights; in the last "
        f"{options.quantised_share:.0%} of the time weights are rounded to 4 bits in every pass",
    }
    if trainer.stopped_early:
        lines["stopped early"] = f"after {trainer.done:.0%} of the time"
    return lines
