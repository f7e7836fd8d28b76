"""A toy language model whose distribution of a few tokens can be enumerated."""

import torch

from specdemo.engine.passes import ForwardOutput
from specdemo.engine.target import ancestor_mask

TARGET = torch.tensor([0.45, 0.3, 0.15, 0.1])  # probabilities of four tokens
DRAFT = torch.tensor([0.1, 0.2, 0.3, 0.4])


class Table:
    """A toy language model whose logits depend on the last two tokens: fast, and exactly enumerable."""

    words = context = None

    def __init__(self, seed, words):
        generator = torch.Generator().manual_seed(seed)
        self.vocabulary_size = words
        self.logits = torch.randn(words, words, words, generator=generator) * 1.5
        self.ids, self.step, self.grown = [], [], []

    @property
    def length(self):
        return len(self.ids)

    def row(self, text):
        return self.logits[text[-2], text[-1]]

    def read(self, token_ids):
        self.grown.clear()
        self.ids += token_ids
        return self.row(self.ids) if len(self.ids) > 1 else self.logits[0, self.ids[-1]]

    def rollback(self, length):
        self.grown.clear()
        del self.ids[length:]

    def grow(self, token_ids, parents):
        start = len(self.grown)
        self.grown += zip(token_ids, parents, strict=True)
        seen = ancestor_mask([parent for _, parent in self.grown])
        rows = []
        for node in range(start, len(self.grown)):
            path = [self.grown[other][0] for other in range(node + 1) if seen[node, other]]
            rows.append(self.row([*self.ids, *path]))
        return torch.stack(rows)

    def forward(self, pending_id, proposal):
        self.step = [pending_id, *proposal.token_ids]
        rows = [self.row([*self.ids, pending_id, *path]) for path in proposal.paths()]
        return ForwardOutput(torch.stack(rows))

    def draft(self, token_ids, plan):
        return None

    def keep(self, path):
        self.ids += [self.step[0], *(self.step[node + 1] for node in path)]
