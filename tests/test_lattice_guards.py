"""Guards that hold between stages: gradients after inference, and inputs that have no meaning."""

import jaxtyping
import pytest
import torch

from tube_lightning.lattice import exact_elbo, exact_log_likelihood, score_orderings
from tube_lightning.lattice.recursions import _chunk_edges, _group_edges
from tube_lightning.orderings import distinct_sets, reveal_steps


@pytest.mark.parametrize("steps", [None, 3])
def test_gradients_flow_after_a_first_call_in_inference_mode(steps):
    """Edges are kept from the first call; inference tensors could not be saved for backward."""
    _chunk_edges.cache_clear()
    _group_edges.cache_clear()
    with torch.inference_mode():
        exact_log_likelihood(torch.zeros(8, 3), steps)
    table = torch.zeros(8, 3, requires_grad=True)
    exact_log_likelihood(table, steps).backward()
    # every order uses three entries of the table, so the gradient of log p sums to three
    torch.testing.assert_close(table.grad.sum(), torch.tensor(3.0))


def test_a_nan_that_a_draw_meets_is_an_error():
    table = torch.zeros(4, 2)
    table[1, 1] = torch.nan  # position 1 after position 0
    with pytest.raises(ValueError, match="got nan"):
        score_orderings(table, torch.tensor([[0, 1]]))
    assert score_orderings(table, torch.tensor([[1, 0]])).item() == 0


def test_steps_of_the_elbo_are_limited():
    with pytest.raises(ValueError, match="at most 1000000 or None, got 1000001"):
        exact_elbo(torch.zeros(4, 2), 1_000_001)


def test_unknown_roles_are_refused():
    with pytest.raises(ValueError, match="values of Role, got 7"):
        reveal_steps(torch.rand(3), roles=torch.tensor([0, 7, 1]))


def test_regimes_of_other_blocks_are_refused(monkeypatch):
    """With our message: under pytest the check of shapes would answer first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=r"expected 1 blocks of 4 .* got shape \(2, 3, 4\)"):
        distinct_sets(torch.zeros(1, 3, 4).long(), torch.zeros(2, 3, 4).long())
