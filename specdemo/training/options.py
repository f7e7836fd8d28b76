"""Options of a training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.files.folder import trained_facts
from specdemo.models.networks.folders import is_compact
from specdemo.models.networks.registry import NETWORKS, NetworkKind, find_network
from specdemo.training.data import answered_keys, read_prompts


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """One training. The command line checks the ranges of numbers.

    target: catalogue name, hub id, folder or GGUF file
    kind: of `NETWORKS`
    prompts: JSON lines files that the target answers; answers: shards of earlier answers
    out: folder of the drafter; work_dir: answers, hidden states and checkpoints, reused between calls
    init: folder of the draft model below a block or jet drafter; of a draft or feature drafter to continue
    minutes: time to train, over all calls; steps: a fixed number of steps instead, 0 for none
    inner: width between gate and down of a new feature drafter
    depth: tokens that medusa, block and jet predict in one pass
    form: of `NETWORKS`; those other than `own` are of published drafters, which `export drafter` writes
    quantised_share: last part of the training, in which weights are rounded as at run time
    patience: checks without a better held-out loss after which training stops early
    max_answers: answers to use, 0 for all that fit; max_disk_gb: bound on the hidden states
    """

    target: str
    out: Path
    work_dir: Path
    kind: str = "draft"
    prompts: tuple[Path, ...] = ()
    answers: tuple[Path, ...] = ()
    init: Path | None = None
    minutes: float = 45.0
    steps: int = 0
    layers: int = 4
    words: int = 8192
    inner: int = 2560
    depth: int = 5
    form: str = "own"
    max_answers: int = 0
    max_answer_tokens: int = 192
    held_out_prompts: int = 200
    batch_tokens: int = 4096
    learning_rate: float = 1.5e-3
    warm_up_steps: int = 60
    quantised_share: float = 0.3
    patience: int = 4
    checkpoint_seconds: float = 120.0
    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    max_disk_gb: float = 12.0
    cache_dir: Path = AppSettings().cache_dir

    @property
    def network(self) -> NetworkKind:
        """The row of `NETWORKS` of the network to train. Raises UserError for a form that this kind does not have."""
        network = find_network(self.kind, self.form)
        if network is None:
            forms = [row.form for row in NETWORKS if row.kind == self.kind]
            raise UserError(
                "training.unknown_form", form=self.form, kind=self.kind, names=", ".join(forms)
            )
        return network

    def checked(self) -> TrainOptions:
        """Return self, or raise UserError for the first wrong option. Reads the input files."""
        self._check_start()
        if not self.prompts and not self.answers:
            raise UserError("training.no_data")
        if not read_prompts(self.prompts) and not answered_keys(self.answers)[0]:
            raise UserError("training.few_answers")
        return self

    def _check_start(self) -> None:
        """Refuse a form that this kind does not have, and an `init` that it cannot start from."""
        network, init = self.network, self.init
        if init is not None and not is_compact(init):
            raise UserError("training.no_drafter", folder=init)
        facts = trained_facts(init) if init else {}
        if self.form != "own" or facts.get("form", "own") != "own":
            if init and (self.form != "eagle3" or facts.get("form") != "eagle3"):
                raise UserError("training.other_form", form=self.form, name=init.name)
        elif init and not network.starts:
            raise UserError("training.no_start", kind=self.kind)
        elif init or network.extends:
            wanted = "draft" if network.extends else self.kind
            if facts.get("kind") != wanted or "extends" in facts:
                raise UserError("training.other_kind", kind=self.kind, wanted=wanted)
