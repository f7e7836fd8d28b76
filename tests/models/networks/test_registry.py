"""The table of draft networks: each row is found, trained by a recipe, and described by a method."""

from __future__ import annotations

import pytest

from specdemo.drafters.methods import TRAINED
from specdemo.models.networks.registry import NETWORKS, find_network, stored_states
from specdemo.training.recipes import RECIPES

# The hidden states that each row reads of a target with eight layers.
READS = {
    ("draft", "own", False): (),
    ("feature", "own", True): (2, 6, 8),
    ("feature", "own", False): (2, 6, 8),
    ("feature", "eagle3", False): (2, 4, 5),
    ("exit", "own", False): (2,),
    ("medusa", "own", False): (8,),
    ("block", "own", True): (2, 6, 8),
    ("jet", "own", True): (2, 6, 8),
    ("block", "dflash", False): (2, 4, 5),
    ("jet", "dflash", False): (2, 4, 5),
}


def test_registry_has_a_method_for_each_kind():
    assert {row.kind for row in NETWORKS} == set(TRAINED)
    assert len(READS) == len(NETWORKS)


@pytest.mark.parametrize(("kind", "form", "extends"), READS)
def test_registry_row_is_found_and_has_a_recipe(kind, form, extends):
    row = find_network(kind, form, extends=extends)
    assert row is not None
    assert row.recipe in RECIPES
    assert stored_states(8, form)[row.states] == READS[kind, form, extends]
    assert ("reads" in row.facts) == bool(READS[kind, form, extends])
