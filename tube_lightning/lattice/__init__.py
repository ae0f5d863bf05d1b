"""Exact likelihoods by dynamic programming over the subset lattice of a block.

A table ``[..., 2**n, n]`` holds log p(x_d | x_S) at ``[S, d]``, S a bit mask with position 0 as
its lowest bit; entries with d in S are ignored. The any-order ARM is chunks of one position. The
T-step MDM with iid uniform steps is sum_k binom(T, k) G_k(full) / T^n, where G_k sums over the
ways to reveal the block in k nonempty groups: k of its T steps are not empty, and the cost does
not depend on T.

Summing over orders by subsets is classical (Koivisto and Sood 2004); DUEL (Turok et al. 2026)
uses the any-order recursion for diffusion language models.
"""

from tube_lightning.lattice.exact import (
    exact_cubo,
    exact_elbo,
    exact_log_likelihood,
    exact_log_likelihoods,
)
from tube_lightning.lattice.table import score_orderings, score_partitions, scored_table

__all__ = [
    "exact_cubo",
    "exact_elbo",
    "exact_log_likelihood",
    "exact_log_likelihoods",
    "score_orderings",
    "score_partitions",
    "scored_table",
]
