"""The subset lattice against golden values by brute force, to 1e-12 relative."""

import json
import math
from pathlib import Path

import pytest
import torch

from tube_lightning.bounds import cubo, elbo, elbo_k, tvo_upper
from tube_lightning.lattice import (
    exact_cubo,
    exact_elbo,
    exact_log_likelihood,
    score_orderings,
)
from tube_lightning.lattice.recursions import log_chunk_paths
from tube_lightning.orderings import EqualChunks, all_orderings

CASES = json.loads((Path(__file__).parent / "fixtures/golden_subset_dp.json").read_text())["cases"]

pytestmark = pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])


def close_to(got, golden):
    want = torch.tensor([float(value["f"]) for value in golden], dtype=torch.float64)
    torch.testing.assert_close(got.view(-1), want, rtol=1e-12, atol=0)


def table_of(case):
    """Return the table with NaN where a position is in the set: they must not matter."""
    rows = [[math.nan if v is None else float(v) for v in row] for row in case["table"]]
    return torch.tensor(rows, dtype=torch.float64)


def golden_scores(case):
    return torch.tensor([float(v["f"]) for v in case["log_p_orderings"]], dtype=torch.float64)


def test_any_order(case):
    close_to(exact_log_likelihood(table_of(case)), [case["expected"]["ao_arm"]])
    close_to(exact_elbo(table_of(case)), [case["expected"]["ao_arm_elbo"]])


def test_random_steps(case):
    for steps, golden in case["expected"]["mdm_uniform"].items():
        close_to(exact_log_likelihood(table_of(case), int(steps)), [golden["log_p"]])
        close_to(exact_elbo(table_of(case), int(steps)), [golden["elbo"]])


def test_equal_chunks(case):
    checked = 0
    for golden in case["expected"]["chunks"]:
        regime = EqualChunks(len(golden["sizes"]))
        if regime.sizes(case["L"]) == tuple(golden["sizes"]):
            close_to(exact_log_likelihood(table_of(case), regime), [golden["log_p"]])
            close_to(exact_elbo(table_of(case), regime), [golden["elbo"]])
            checked += 1
    assert checked >= 3


def test_chunks_of_any_sizes(case):
    table = table_of(case).nan_to_num(nan=0.0)[None]
    for golden in case["expected"]["chunks"]:
        sizes = tuple(golden["sizes"])
        num_chunkings = math.factorial(case["L"]) // math.prod(map(math.factorial, sizes))
        close_to(log_chunk_paths(table, sizes) - math.log(num_chunkings), [golden["log_p"]])


def test_states_of_the_recursion(case):
    """F[S] is the whole recursion on the block that S alone makes."""
    size, table = case["L"], table_of(case)
    for code in range(1, 2**size):
        members = [d for d in range(size) if code >> d & 1]
        subsets = [
            sum(1 << d for slot, d in enumerate(members) if subset >> slot & 1)
            for subset in range(2 ** len(members))
        ]
        log_mean = exact_log_likelihood(table[subsets][:, members])
        close_to(log_mean + math.lgamma(len(members) + 1), [case["expected"]["F"][code]])


def test_scores_of_all_orderings(case):
    orderings = all_orderings(case["L"])
    assert orderings.tolist() == case["orderings"]
    close_to(score_orderings(table_of(case), orderings), case["log_p_orderings"])


def test_all_orderings_are_the_population(case):
    """On the complete enumeration the sampled estimators are the population's values."""
    scores = golden_scores(case)
    close_to(elbo(scores), [case["expected"]["ao_arm_elbo"]])
    close_to(elbo_k(scores), [case["expected"]["ao_arm"]])


def test_population_cubo(case):
    for beta, golden in case["expected"]["cubo"].items():
        close_to(exact_cubo(table_of(case), float(beta)), [golden])
        close_to(cubo(golden_scores(case), float(beta)), [golden])


def test_population_tvo(case):
    for partitions, golden in case["expected"]["tvo_u"].items():
        close_to(tvo_upper(golden_scores(case), int(partitions)), [golden])
