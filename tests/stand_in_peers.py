"""Peers that answer without a model. They run in processes of their own, so this file imports little."""

import sys
import time

from specdemo.bench.peer import Spoken


def echo(spec, parent, _errors):
    parent.send({"spec": spec.lane})
    while True:
        prompt_ids, *_ = parent.recv()
        parent.send(Spoken((len(prompt_ids) % 26, 1), 2, 0.5, 1, 3))


def dies(_spec, _parent, errors):
    errors.write_text("first\nno such instruction")
    sys.exit(1)


def sulks(_spec, parent, _errors):
    parent.send({})
    time.sleep(60)
