"""The training costs against the exact lattice and the naive forward."""

import math

import pytest
import torch

from tests.networks import VOCAB, random_network, random_tokens
from tube_lightning.lattice import exact_elbo
from tube_lightning.networks import BlockDiffusion, DiT, DiTConfig
from tube_lightning.networks.arm import DiTARM
from tube_lightning.orderings import block_roles
from tube_lightning.scoring import conditional_table
from tube_lightning.training import negative_log_likelihood, nelbo
from tube_lightning.training.objectives import antithetic_uniform


def arm_network(seed=0):
    config = DiTConfig(
        vocab_size=VOCAB,
        model_length=32,
        block_size=1,
        hidden_dim=32,
        n_blocks=2,
        n_heads=4,
        adaln=False,
        cross_attn=False,
        causal=True,
    )
    network = DiT(config).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return network


@pytest.mark.parametrize(("block_size", "length", "cross_attn"), [(4, 12, True), (8, 8, False)])
def test_nelbo_agrees_with_the_exact_elbo(block_size, length, cross_attn):
    """Within 4 standard errors of 3,000 draws of noise, at a fixed seed."""
    network = random_network(block_size, cross_attn=cross_attn, length=length, std=0.2)
    tokens = random_tokens(1, length)
    table = conditional_table(
        BlockDiffusion.from_network(network), tokens, roles=block_roles(length, block_size, 1)
    )
    exact = -exact_elbo(table).sum()
    generator = torch.Generator().manual_seed(0)
    copies = tokens.expand(100, -1)
    with torch.no_grad():
        draws = torch.stack(
            [nelbo(network, copies, generator, min_time=0.0).sum_nats / 100 for _ in range(30)]
        ).double()
    error = draws.std() / math.sqrt(len(draws))
    assert abs(draws.mean() - exact) < 4 * error
    assert error < 0.05 * exact  # the test has teeth


def test_clipped_times_change_the_cost_and_are_checked():
    network, tokens = random_network(4), random_tokens(2)
    with pytest.raises(ValueError, match=r"min < max.*0\.5 and 0\.5"):
        nelbo(network, tokens, torch.Generator(), min_time=0.5, max_time=0.5)
    cost = nelbo(network, tokens, torch.Generator().manual_seed(0), min_time=0.3, max_time=0.8)
    assert cost.num_tokens == 2 * 31
    assert cost.sum_nats > 0


def test_token_0_is_never_hidden():
    """With all else hidden (times at 1), changing token 0 changes what the first block costs."""
    network, tokens = random_network(4), random_tokens(1)
    other = tokens.clone()
    other[0, 0] = (tokens[0, 0] + 1) % (VOCAB - 1)
    costs = [
        nelbo(network, t, torch.Generator().manual_seed(0), min_time=0.999999).sum_nats
        for t in (tokens, other)
    ]
    assert costs[0] != costs[1]


def test_arm_cost_is_the_likelihood_of_the_loaded_model():
    network, tokens = arm_network(), random_tokens(3)
    cost = negative_log_likelihood(network, tokens, torch.Generator())
    arm = DiTARM.from_network(network, torch.float32)
    torch.testing.assert_close(cost.sum_nats, -arm.token_log_probs(tokens).sum())
    assert cost.num_tokens == 3 * 31


def test_antithetic_times_are_uniform_and_stratified():
    draws = torch.stack(
        [antithetic_uniform(8, torch.Generator().manual_seed(seed)) for seed in range(2000)]
    )
    assert ((draws * 8).long().sort(dim=1).values == torch.arange(8)).all()
    assert abs(draws[:, 0].mean() - 0.5) < 4 * (1 / 12 / 2000) ** 0.5


@pytest.mark.parametrize("kind", ["bd3lm", "mdlm", "arm"])
def test_a_few_steps_lower_the_cost(kind):
    torch.manual_seed(0)
    base = {"bd3lm": random_network(4), "mdlm": random_network(32, cross_attn=False)}
    network = DiT((base.get(kind) or arm_network()).config)
    objective = negative_log_likelihood if kind == "arm" else nelbo
    tokens = (torch.arange(32) % 5).repeat(8, 1)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)

    def cost(seed):
        value = objective(network, tokens, torch.Generator().manual_seed(seed))
        return value.sum_nats / value.num_tokens

    start = cost(1000).item()
    for step in range(25):
        optimizer.zero_grad()
        cost(step).backward()
        optimizer.step()
    assert cost(1000).item() < 0.7 * start
