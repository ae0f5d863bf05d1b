"""A latent-variable model that is no language model: z ~ N(0, 1), x | z ~ N(a z, s^2).

Its evidence is N(x; 0, a^2 + s^2). The "orderings" are draws of z; with a small s the densities
exceed one and the scores are positive. Fixed seeds; tolerances in standard errors, which exist:
1 / psi, psi a mean of M draws, has a finite variance where a^2 / s^2 < M / 2.
"""

import math

import pytest
import torch

from tube_lightning.bounds import elbo, elbo_k, tube, tube_loo, tube_split

NUM_REPEATS = 20_000
MODELS = [(1.0, 1.0, 0.3), (1.0, 1.0, -2.5), (0.1, 0.1, 0.1), (0.5, 2.0, 4.0)]  # a, s, x

models = pytest.mark.parametrize(("slope", "noise", "x"), MODELS)


def log_normal(x, mean, std):
    return -0.5 * ((x - mean) / std) ** 2 - math.log(std) - 0.5 * math.log(2 * math.pi)


def log_evidence(slope, noise, x):
    return log_normal(x, 0.0, math.hypot(slope, noise))


def draw_scores(slope, noise, x, num_draws):
    generator = torch.Generator().manual_seed(20_240_607)
    z = torch.randn(NUM_REPEATS, num_draws, generator=generator, dtype=torch.float64)
    return log_normal(x, slope * z, noise)


def mean_and_error(values):
    return values.mean().item(), values.std().item() / math.sqrt(len(values))


@models
@pytest.mark.parametrize("num_draws", [8, 16])
def test_lower_and_upper_bracket_the_evidence(slope, noise, x, num_draws):
    """The gaps are real: each is larger than 4 standard errors."""
    scores = draw_scores(slope, noise, x, num_draws)
    evidence = log_evidence(slope, noise, x)
    for lower in (elbo, elbo_k):
        mean, error = mean_and_error(lower(scores))
        assert mean + 4 * error < evidence
    for upper in (tube_loo, tube_split):
        mean, error = mean_and_error(upper(scores))
        assert evidence < mean - 4 * error


@models
@pytest.mark.parametrize("offset", [-1.0, 0.0, 1.0])
def test_tube_at_a_known_surrogate(slope, noise, x, offset):
    """E[TUBE] = log psi + p/psi - 1, which is the evidence itself at psi = p: within 4 errors."""
    scores = draw_scores(slope, noise, x, num_draws=8)
    evidence = log_evidence(slope, noise, x)
    log_psi = evidence + offset
    values = tube(scores, torch.tensor(log_psi, dtype=torch.float64))
    mean, error = mean_and_error(values)
    assert abs(mean - (log_psi + math.expm1(evidence - log_psi))) < 4 * error
    assert error < 0.02  # so that the line above says something


@models
def test_single_sample_elbo_is_its_closed_form(slope, noise, x):
    """E_z log N(x; a z, s^2) = log N(x; 0, s^2) - a^2 / (2 s^2): within 4 errors."""
    mean, error = mean_and_error(elbo(draw_scores(slope, noise, x, num_draws=4)))
    assert abs(mean - (log_normal(x, 0.0, noise) - 0.5 * (slope / noise) ** 2)) < 4 * error
