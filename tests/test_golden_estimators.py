"""Every estimator against golden values of 40 digits, to 1e-12 relative."""

import json
import math
from functools import partial
from pathlib import Path

import pytest
import torch

from tube_lightning.bounds import (
    cubo,
    elbo,
    elbo_k,
    isvgb,
    tube,
    tube_kfold,
    tube_loo,
    tube_split,
    tvo_upper,
)

CASES = json.loads((Path(__file__).parent / "fixtures/golden_estimators.json").read_text())["cases"]
ELSEWHERE = ("tube_log_psi", "tvo_l_", "jvi1")  # its own test; the last two are not ours


def close_to(got, golden):
    want = torch.tensor([float(value["f"]) for value in golden], dtype=torch.float64)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=0)


def scores_of(case):
    return torch.tensor([[float(s) for s in row] for row in case["log_p"]], dtype=torch.float64)


def isvgb_from(scores, pairs, size, layout):
    """Take the first 2 * pairs * size scores, in our layout."""
    used = scores[..., : 2 * pairs * size]
    if layout == "XYXY":
        used = used.unflatten(-1, (pairs, 2, size)).transpose(-3, -2).flatten(-3)
    return isvgb(used, pairs)


def swapped_mean(scores):
    half = scores.shape[-1] // 2
    return (tube_split(scores) + tube_split(scores.roll(-half, dims=-1))) / 2


def estimator(name):
    match name.split("_"):
        case ["elbo"]:
            return elbo
        case ["elbo", "k"]:
            return elbo_k
        case ["cubo", beta]:
            return partial(cubo, beta=float(beta))
        case ["tvo", "u", partitions]:
            return partial(tvo_upper, partitions=int(partitions))
        case ["isvgb", pairs, size, layout]:
            return partial(isvgb_from, pairs=int(pairs[2:]), size=int(size[1:]), layout=layout)
        case ["tube", "split"]:
            return tube_split
        case ["tube", "swap"]:
            return swapped_mean
        case ["tube", "kfold", folds]:
            return partial(tube_kfold, folds=int(folds))
        case ["tube", "loo"]:
            return tube_loo
    raise KeyError(name)


def rows(keep):
    """List (case, name) of the golden values per block that ``keep`` wants."""
    return [
        pytest.param(case, name, id=f"{case['name']}-{name}")
        for case in CASES
        for name, golden in case["expected"].items()
        if "/" not in name and not name.startswith(ELSEWHERE) and keep(golden)
    ]


DEFINED = rows(lambda golden: None not in golden)
UNDEFINED = rows(lambda golden: all(value is None for value in golden))
LIMITS = rows(lambda golden: None in golden and any(value is not None for value in golden))


def test_all_golden_rows_are_used():
    assert (len(DEFINED), len(UNDEFINED), len(LIMITS)) == (177, 3, 4)


@pytest.mark.parametrize(("case", "name"), DEFINED)
def test_golden_value_of_every_block(case, name):
    close_to(estimator(name)(scores_of(case)), case["expected"][name])


@pytest.mark.parametrize(("case", "name"), DEFINED)
def test_golden_sum_and_perplexity(case, name):
    total = estimator(name)(scores_of(case)).sum()
    num_tokens = len(case["log_p"]) * case["block_size"]
    perplexity = torch.exp(-total / num_tokens)
    close_to(total[None], [case["expected"][f"{name}/sum"]])
    close_to(perplexity[None], [case["expected"][f"{name}/ppl"]])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden_tube_at_given_surrogates(case):
    log_psi = torch.tensor(
        [[float(v) for v in row] for row in case["log_psi"]], dtype=torch.float64
    )
    values = tube(scores_of(case)[:, None, :], log_psi)
    for got, golden in zip(values, case["expected"]["tube_log_psi"], strict=True):
        close_to(got, golden)


@pytest.mark.parametrize(("case", "name"), UNDEFINED)
def test_undefined_for_one_ordering_is_an_error(case, name):
    assert case["K"] == 1
    with pytest.raises(ValueError, match="at least 2"):
        estimator(name)(scores_of(case))


@pytest.mark.parametrize(("case", "name"), LIMITS)
def test_undefined_variational_gap_is_the_documented_limit(case, name):
    """In these, one of several X is zero and its Y is not: the limit is inf."""
    golden = case["expected"][name]
    values = estimator(name)(scores_of(case))
    assert values.tolist() == pytest.approx(
        [math.inf if value is None else value["f"] for value in golden], rel=1e-12, abs=0
    )


@pytest.mark.parametrize("case", [c for c in CASES if c["K"] > 1], ids=lambda case: case["name"])
def test_two_folds_are_the_two_splits(case):
    scores = scores_of(case)
    torch.testing.assert_close(
        tube_kfold(scores, folds=2), swapped_mean(scores), rtol=1e-14, atol=0
    )
