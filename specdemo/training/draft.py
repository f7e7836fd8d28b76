"""Trains a compact draft for a Llama target, from prompts to a folder that loads.

Answers, hidden states, training, evaluation, files: each step keeps what it has done, so that the same
call made again goes on where the last one stopped.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdemo.errors import UserError
from specdemo.models.compact_files import FORMAT, save_compact
from specdemo.models.loading import choose_device
from specdemo.models.progress import Progress, ProgressCallback, megabytes, silent
from specdemo.models.sources import ModelFiles, resolve
from specdemo.models.store import check_space, full_disk_is_told, make_folder
from specdemo.models.tokenizers import load_tokenizer
from specdemo.settings import AppSettings
from specdemo.training.card import Card, describe_machine, render

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import LlamaConfig

    from specdemo.training.data import Answer, Row
    from specdemo.training.teacher import HiddenStates

WEIGHT_DECAY, BETAS = 0.05, (0.9, 0.95)
MID_WEIGHT, MID_UNTIL = 0.5, 0.6
DECAY_SHARE, LAST_RATE = 0.9, 0.01
REPORT_STEPS, SMOOTHING = 10, 0.96


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """What a draft is trained from, and for how long.

    target: catalogue name, hub id, folder or GGUF file
    prompts: JSON lines files that the target answers; answers: shards that it has answered already
    out: folder of the draft; work_dir: answers, hidden states and checkpoints, kept between calls
    minutes: time to train, over all calls together; steps: a fixed number of steps in its place, 0 for none
    max_answers: answers to use, 0 for all that fit; max_disk_gb: bound on the hidden states
    """

    target: str
    out: Path
    work_dir: Path
    prompts: tuple[Path, ...] = ()
    answers: tuple[Path, ...] = ()
    minutes: float = 45.0
    steps: int = 0
    layers: int = 4
    words: int = 8192
    max_answers: int = 0
    max_answer_tokens: int = 192
    held_out_prompts: int = 200
    batch_tokens: int = 4096
    learning_rate: float = 1.5e-3
    warm_up_steps: int = 60
    checkpoint_seconds: float = 120.0
    seed: int = 0
    device: str = "auto"
    precision: str = "nf4"
    compile: bool = True
    max_disk_gb: float = 8.0
    cache_dir: Path = AppSettings().cache_dir

    def checked(self) -> TrainOptions:
        """Return self, or raise UserError naming what is wrong."""
        if not self.prompts and not self.answers:
            raise UserError(
                "There is nothing to train on.",
                advice="Name a prompt file (--prompts) or answers (--answers).",
            )
        for path in (*self.prompts, *self.answers):
            if not path.is_file():
                raise UserError(f"There is no file {path}.", advice="Check the path.")
        for name in (
            "layers",
            "words",
            "max_answer_tokens",
            "batch_tokens",
            "max_disk_gb",
            "learning_rate",
        ):
            if not getattr(self, name) > 0:
                raise UserError(
                    f"{name} is {getattr(self, name)!r}; it must be more than 0.",
                    advice="Change it.",
                )
        if not (self.minutes > 0 or self.steps > 0):
            raise UserError("The time to train must be more than 0 minutes.", advice="Change it.")
        return self


@dataclass(frozen=True, slots=True)
class TrainReport:
    """What came out.

    results: on held-out prompts, as in the card; losses: (step, moving average of the KL in nats)
    resumed_at: the step that an earlier call had reached, 0 for a fresh start
    """

    out: Path
    card: Card
    parameters: int
    results: dict[str, float]
    losses: tuple[tuple[int, float], ...]
    resumed_at: int


def train(options: TrainOptions, progress: ProgressCallback = silent) -> TrainReport:
    """Answer, cache, train, evaluate and write a draft; interrupted, the same call continues."""
    import torch

    from specdemo.training.data import hold_out
    from specdemo.training.evaluate import evaluate
    from specdemo.training.student import compiled, stack, trained_state
    from specdemo.training.teacher import load_teacher

    device = choose_device(options.checked().device)
    files = resolve(options.target, options.cache_dir, progress)
    config = read_llama_config(files.folder)
    if options.layers > config.num_hidden_layers:
        raise UserError(
            f"{files.name} has {config.num_hidden_layers} layers, a draft cannot have {options.layers}.",
            advice="Choose fewer layers.",
        )
    torch.manual_seed(options.seed)
    make_folder(options.work_dir)
    with full_disk_is_told("training the draft"):
        progress(Progress("load", None, files.name))
        teacher = load_teacher(files.folder, options.precision, device)
        work = options.work_dir / _digest(_data_facts(options, files))
        answers = _gather(options, files, teacher, work, progress)
        rows, hidden, layers = _prepare(options, config, teacher, answers, work, progress)
        embedding = teacher.model.embed_tokens.weight.detach()
        del teacher
        word_ids = torch.from_numpy(hidden.word_mass.argsort()[::-1][: options.words].copy())
        word_ids = word_ids.sort().values.to(device)
        kept, held = hold_out(rows, options.held_out_prompts, options.seed)
        if not kept:
            raise UserError("There are too few answers to train on.", advice="Name more prompts.")
        draft = _begin(config, files.folder, layers, device)
        run = stack(draft, options.layers // 2 - 1)
        run = compiled(run) if options.compile else run
        trainer = _Trainer(options, draft, run, work / f"{_digest(_train_facts(options))}.pt")
        trainer.fit(kept, hidden, embedding[word_ids], progress)
        progress(Progress("evaluate", None, f"{len(held)} answers"))
        draft.eval()
        results = (
            evaluate(run, held, hidden, embedding, word_ids, options.batch_tokens) if held else {}
        )
        card = Card(
            files.name, options.precision, layers, len(word_ids), _data_lines(options, answers),
            trainer.tokens_seen, trainer.step, round(trainer.seconds / 60, 2), options.seed, results,
            _recipe(options), describe_machine(str(device)),
        )  # fmt: skip
        state = trained_state(draft)
        package(state, word_ids.cpu(), files.folder, options.out, card)
    progress(Progress("evaluate", 1.0, f"written to {options.out}"))
    parameters = sum(tensor.numel() for tensor in state.values())
    return TrainReport(
        options.out, card, parameters, results, tuple(trainer.losses), trainer.resumed_at
    )


def _gather(
    options: TrainOptions, files: ModelFiles, teacher: Any, work: Path, progress: ProgressCallback
) -> list[Answer]:
    """Answers that were given, and the target's own to the prompts."""
    from specdemo.training.data import read_answers, read_prompts
    from specdemo.training.teacher import answer_prompts

    paths = list(options.answers)
    if options.prompts:
        prompts = read_prompts(options.prompts)
        if options.max_answers:
            import numpy as np

            chosen = np.random.default_rng(options.seed).permutation(len(prompts))[
                : options.max_answers
            ]
            prompts = [prompts[index] for index in chosen]
        paths += answer_prompts(
            teacher, load_tokenizer(files), prompts, work / "answers",
            max_answer_tokens=options.max_answer_tokens, seed=options.seed, progress=progress,
        )  # fmt: skip
    return read_answers(paths, teacher.config.vocab_size)


def _prepare(
    options: TrainOptions,
    config: LlamaConfig,
    teacher: Any,
    answers: list[Answer],
    work: Path,
    progress: ProgressCallback,
) -> tuple[list[Row], HiddenStates, tuple[int, ...]]:
    """Rows and their hidden states, within the bound on disk, and the target's layers to begin with."""
    from specdemo.training.data import choose, to_rows
    from specdemo.training.student import spread
    from specdemo.training.teacher import HiddenStates, cache_hidden

    size = HiddenStates.bytes_per_position(config.hidden_size)
    chosen = choose(
        answers, max_answers=options.max_answers,
        max_positions=int(options.max_disk_gb * 1e9) // size, seed=options.seed,
    )  # fmt: skip
    rows = to_rows(chosen, config.max_position_embeddings)
    if not rows:
        raise UserError(
            "There are too few answers to train on.",
            advice="Name more prompts, or allow more disk.",
        )
    layers = spread(options.layers, config.num_hidden_layers)
    mid_layer = layers[options.layers // 2]
    facts = [options.max_answers, options.max_disk_gb, options.seed, mid_layer]
    folder = work / f"hidden-{_digest(facts)}"
    if not (folder / "final.npy").is_file():
        needed = size * sum(len(row.token_ids) for row in rows)
        check_space(work, needed, f"Caching hidden states ({megabytes(needed)})")
    return rows, cache_hidden(teacher, rows, mid_layer, folder, progress), layers


def _begin(config: LlamaConfig, folder: Path, layers: tuple[int, ...], device: torch.device) -> Any:
    import torch
    from transformers import LlamaForCausalLM

    from specdemo.models.quiet import quiet_transformers
    from specdemo.training.student import begin

    with quiet_transformers():
        target = LlamaForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True
        )
    return begin(draft_config(config, len(layers)), target.model, layers).to(device)


class _Trainer:
    """Optimizer, schedule and checkpoints of one draft."""

    def __init__(self, options: TrainOptions, draft: Any, run: Any, checkpoint: Path) -> None:
        import torch

        self.options, self.draft, self.run, self.checkpoint = options, draft, run, checkpoint
        self.parameters = [p for p in draft.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=options.learning_rate, weight_decay=WEIGHT_DECAY, betas=BETAS
        )
        self.step = self.tokens_seen = self.resumed_at = 0
        self.seconds = 0.0
        self.losses: list[tuple[int, float]] = []
        self.average = 0.0

    @property
    def fraction(self) -> float:
        """How much of the training is done, 0 to 1."""
        if self.options.steps:
            return min(1.0, self.step / self.options.steps)
        return min(1.0, self.seconds / (60 * self.options.minutes))

    def fit(
        self, rows: list[Row], hidden: HiddenStates, head: Tensor, progress: ProgressCallback
    ) -> None:
        """Train until the time is over; a checkpoint now and then, and when interrupted."""
        self._resume()
        self.draft.train()
        batches, saved = self._batches(rows), self.seconds
        try:
            while self.fraction < 1:
                begun = time.monotonic()
                self._learn(next(batches), hidden, head)
                self.seconds += time.monotonic() - begun
                if self.seconds - saved > self.options.checkpoint_seconds:
                    self._save()
                    saved = self.seconds
                if self.step % REPORT_STEPS == 0:
                    self.losses.append((self.step, self.average))
                detail = f"step {self.step}, loss {self.average:.3f}, {self.tokens_seen:,} tokens"
                progress(Progress("train", self.fraction, detail))
        except KeyboardInterrupt:
            self._save()
            raise
        self._save()

    def _batches(self, rows: list[Row]) -> Iterator[list[Row]]:
        """Batches for ever, each epoch in its own order; those of earlier calls are passed over."""
        from specdemo.training.data import batches

        epoch, passed = 0, 0
        while True:
            for batch in batches(
                rows, self.options.batch_tokens, (self.options.seed + 1) * 1000 + epoch
            ):
                passed += 1
                if passed > self.resumed_at:
                    yield batch
            epoch += 1

    def _learn(self, batch: list[Row], hidden: HiddenStates, head: Tensor) -> None:
        """One step. The rate warms up, stays, and falls linearly to a hundredth over the time."""
        import torch

        from specdemo.training.student import batch_loss

        done = self.fraction
        warm = min(1.0, (self.step + 1) / max(1, self.options.warm_up_steps))
        rate = (
            self.options.learning_rate * warm * max(LAST_RATE, min(1.0, (1 - done) / DECAY_SHARE))
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        mid_weight = MID_WEIGHT * max(0.0, 1 - done / MID_UNTIL) if self.options.layers > 1 else 0.0
        loss, divergence = batch_loss(self.run, batch, hidden, head, mid_weight)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        value = float(divergence)  # sync: one per step
        self.average = SMOOTHING * self.average + (1 - SMOOTHING) * value if self.step else value
        self.step += 1
        self.tokens_seen += sum(len(row.token_ids) for row in batch)

    def _save(self) -> None:
        from specdemo.training.student import save_tensors, trained_state

        save_tensors(
            self.checkpoint,
            {
                "state": trained_state(self.draft),
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
                "tokens_seen": self.tokens_seen,
                "seconds": self.seconds,
                "average": self.average,
                "losses": self.losses,
            },
        )

    def _resume(self) -> None:
        import torch

        if not self.checkpoint.is_file():
            return
        try:
            saved = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises errors of many kinds for a damaged file
            raise UserError(
                "The checkpoint of the training is damaged.",
                unharmed="Answers and hidden states are kept.",
                advice=f"Remove {self.checkpoint.name} from {self.checkpoint.parent} and train again.",
            ) from error
        self.draft.load_state_dict(saved["state"], strict=False)
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step = self.resumed_at = saved["step"]
        self.tokens_seen, self.seconds = saved["tokens_seen"], saved["seconds"]
        self.average, self.losses = saved["average"], [tuple(pair) for pair in saved["losses"]]


def _data_facts(options: TrainOptions, files: ModelFiles) -> list[object]:
    """What the answers and hidden states depend on."""
    inputs = [[path.name, path.stat().st_size] for path in (*options.prompts, *options.answers)]
    amount = [options.max_answers, options.max_answer_tokens] if options.prompts else []
    where = files.revision or str(files.folder)
    return [files.name, where, options.precision, inputs, amount, options.seed]


def _train_facts(options: TrainOptions) -> list[object]:
    """What weights and optimizer depend on; not the time, so that training can be made longer."""
    names = (
        "layers",
        "words",
        "batch_tokens",
        "learning_rate",
        "held_out_prompts",
        "seed",
        "max_answers",
    )
    return [*(getattr(options, name) for name in names), options.max_disk_gb]


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


def _recipe(options: TrainOptions) -> dict[str, float | str]:
    """What a reader needs to do it again."""
    return {
        "loss": "KL to the target over the reduced vocabulary + normalised squared error of the final hidden "
        f"state + {MID_WEIGHT} times that of a middle one, fading out at {MID_UNTIL:.0%} of the time",
        "optimizer": f"AdamW, betas {BETAS[0]} and {BETAS[1]}, weight decay {WEIGHT_DECAY}",
        "learning rate": f"{options.learning_rate:g}, {options.warm_up_steps} steps of warm-up, "
        f"linear decay to {LAST_RATE:.0%}",
        "batch": f"{options.batch_tokens} tokens",
        "arithmetic": "bf16 autocast over fp32 weights",
    }


def read_llama_config(target_folder: Path) -> LlamaConfig:
    """The target's config; UserError when a compact draft cannot be cut out of such a model."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(target_folder), trust_remote_code=False)
    why = ""
    if config.model_type != "llama":
        why = f"its architecture is {config.model_type}, and drafts are cut out of Llama models"
    elif not config.tie_word_embeddings:
        why = "its output head is not its embedding, which the draft would share"
    elif config.rope_parameters.get("rope_type", "default") != "default":
        why = "it stretches its positions, which the draft's runtime does not do"
    elif config.attention_bias or config.mlp_bias or config.hidden_act != "silu":
        why = "its layers differ from plain Llama layers (biases or activation)"
    if why:
        raise UserError(
            f"A draft for {target_folder.name} cannot be trained: {why}.",
            unharmed="It still runs, with methods that need no draft or with a draft of its own family.",
            advice="Choose a Llama target such as smollm2-135m-instruct.",
        )
    return config


def draft_config(target: LlamaConfig, num_layers: int) -> LlamaConfig:
    """The target's config with fewer layers."""
    from transformers import LlamaConfig

    plain = target.to_dict()
    for key in ("_name_or_path", "_model_name_or_path", "layer_types", "transformers_version"):
        plain.pop(key, None)
    plain |= {
        "num_hidden_layers": num_layers,
        "architectures": ["LlamaForCausalLM"],
        "dtype": "bfloat16",
    }
    return LlamaConfig.from_dict(plain)


def package(
    state: dict[str, Tensor], word_ids: Tensor, target_folder: Path, out: Path, card: Card
) -> None:
    """Write a draft's folder: weights, config.json and its card.

    state: a Llama's tensors without its embedding ("layers.0.self_attn.q_proj.weight", ..., "norm.weight")
    word_ids: (W,) int64 — token id of each output word, ascending
    """
    num_layers = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("layers."))
    config = draft_config(read_llama_config(target_folder), num_layers)
    parameters = sum(tensor.numel() for tensor in state.values())
    plain = json.loads(config.to_json_string(use_diff=True))
    # The runtime reads these keys, whichever of them transformers would leave out as defaults.
    for key in (
        "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps",
        "num_hidden_layers", "rope_parameters", "tie_word_embeddings", "vocab_size",
    ):  # fmt: skip
        plain[key] = getattr(config, key)
    plain["specdemo"] = {
        "format": FORMAT,
        "embedding_from": card.target,
        "parameters": parameters,
        "card": card.to_dict(),
    }
    save_compact(out, plain, state, word_ids)
    (out / "README.md").write_text(render(card, parameters), encoding="utf-8")
