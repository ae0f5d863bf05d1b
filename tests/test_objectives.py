"""The training costs against the exact lattice and the naive forward."""

import itertools
import math
from functools import partial

import pytest
import torch

from benchmarks.naive import one_stream_log_probs, two_stream_log_probs
from tests.networks import VOCAB, random_network, random_tokens
from tube_lightning.lattice import exact_elbo
from tube_lightning.networks import BlockDiffusion, DiT, DiTConfig
from tube_lightning.networks.arm import DiTARM
from tube_lightning.orderings import Role, block_roles
from tube_lightning.scoring import conditional_table
from tube_lightning.training import (
    hide_by_count,
    hide_by_time,
    negative_log_likelihood,
    nelbo,
    noise,
)
from tube_lightning.training.noise import stratified_uniform


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


def naive_nats(network, tokens, hidden):
    """-log p of hidden tokens by the naive forward, [length]; absent positions hold masks."""
    size, (_, length) = network.config.block_size, tokens.shape
    num_blocks = -(-length // size)
    padded, masked = torch.zeros(2, 1, num_blocks * size, dtype=torch.int64)
    padded[:, :length], masked = tokens, masked.bool()
    masked[:, :length], masked[:, length:] = hidden, True
    state = {f"backbone.{name}": value for name, value in network.named_parameters()}
    heads = network.config.n_heads
    if network.config.cross_attn:
        values = two_stream_log_probs(state, padded, masked, block_size=size, n_heads=heads)
    else:
        values = one_stream_log_probs(state, padded, masked, n_heads=heads)
    return torch.where(hidden, -values[0, :length], 0.0)


def brute_force_nelbo(network, tokens):
    """The mean over all orders of all tokens of a block, one naive forward a revealed set."""
    length, size = tokens.shape[1], network.config.block_size
    total = 0.0
    for start in range(0, length, size):
        scored = [d for d in range(start, min(start + size, length)) if d > 0]
        costs = []
        for order in itertools.permutations(scored):
            cost = 0.0
            for step, position in enumerate(order):
                hidden = torch.zeros(length, dtype=torch.bool)
                hidden[list(order[step:])] = True
                cost += naive_nats(network, tokens, hidden)[position].item()
            costs.append(cost)
        total += sum(costs) / max(len(costs), 1)
    return total


SHAPES = [(4, 12, True), (4, 11, True), (3, 9, True), (2, 5, True), (1, 3, True), (4, 4, False)]


@pytest.mark.parametrize(("block_size", "length", "cross_attn"), SHAPES)
@pytest.mark.parametrize("copies", [1, 2, 3])
def test_the_expected_cost_is_the_exact_nelbo(monkeypatch, block_size, length, cross_attn, copies):
    """Enumerated, not sampled: every count of hidden tokens with every order of the positions.

    The two draws are replaced by a grid, each point in one of a batch of equal sequences: twelve
    strata, which 1 to 4 counts divide evenly, times all priorities of the positions.
    """
    network = random_network(block_size, cross_attn=cross_attn, length=length, std=0.2)
    tokens = random_tokens(1, length)
    blocks = -(-length // block_size)
    points = list(itertools.product(range(12), itertools.permutations(range(block_size))))

    def units(count, num_copies, generator):
        assert (count, num_copies) == (len(points) * blocks, copies)
        strata = torch.tensor([stratum for stratum, _ in points])
        shifted = (strata[:, None] + 5 * torch.arange(copies)) % 12  # a copy sees each, too
        return ((shifted + 0.5) / 12).repeat_interleave(blocks, dim=0)

    def priorities(shape, generator, device):
        assert shape == (len(points), blocks, copies, block_size)
        order = torch.tensor([priority for _, priority in points], dtype=torch.float32)
        return order[:, None, None].expand(shape)

    monkeypatch.setattr(noise, "stratified_uniform", units)
    monkeypatch.setattr(noise.torch, "rand", priorities)
    with torch.no_grad():
        cost = nelbo(network, tokens.expand(len(points), -1), torch.Generator(), copies=copies)
        exact = brute_force_nelbo(network, tokens)
    assert cost.num_tokens == len(points) * (length - 1)
    assert cost.sum_nats.item() / len(points) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(("block_size", "length", "cross_attn"), [(4, 12, True), (8, 8, False)])
@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("hide", [hide_by_count, partial(hide_by_time, min_time=0.0)])
def test_draws_agree_with_the_exact_elbo(block_size, length, cross_attn, copies, hide):
    """Within 4 standard errors of 3,000 draws of noise, at a fixed seed."""
    network = random_network(block_size, cross_attn=cross_attn, length=length, std=0.2)
    tokens = random_tokens(1, length)
    table = conditional_table(
        BlockDiffusion.from_network(network), tokens, roles=block_roles(length, block_size, 1)
    )
    exact = -exact_elbo(table).sum()
    generator = torch.Generator().manual_seed(0)
    batch = tokens.expand(100, -1)
    with torch.no_grad():
        draws = torch.stack(
            [
                nelbo(network, batch, generator, hide=hide, copies=copies).sum_nats / 100
                for _ in range(30)
            ]
        ).double()
    error = draws.std() / math.sqrt(len(draws))
    assert abs(draws.mean() - exact) < 4 * error
    assert error < 0.05 * exact  # the test has teeth


@pytest.mark.parametrize(("block_size", "cross_attn"), [(4, True), (5, True), (32, False)])
@pytest.mark.parametrize("copies", [1, 3])
def test_gradients_are_those_of_the_naive_forward(block_size, cross_attn, copies):
    """Copies behind one clean stream give the gradients of separate two-stream passes."""
    network = random_network(block_size, cross_attn=cross_attn, std=0.2)
    tokens = random_tokens(2)
    cost = nelbo(network, tokens, torch.Generator().manual_seed(7), copies=copies).sum_nats
    ours = torch.autograd.grad(cost, list(network.parameters()))
    scored = block_roles(tokens.shape[1], block_size) == Role.SCORED
    drawn = hide_by_count(scored, 2, copies, torch.Generator().manual_seed(7))
    naive = torch.zeros(())
    for sequence, copy in itertools.product(range(2), range(copies)):
        hidden = drawn.hidden[sequence, :, copy].flatten()[: tokens.shape[1]]
        weights = drawn.weights[sequence, :, copy].repeat_interleave(block_size)
        nats = naive_nats(network, tokens[[sequence]], hidden)
        naive = naive + (nats * weights[: tokens.shape[1]]).sum() / copies
    assert cost.item() == pytest.approx(naive.item(), rel=1e-5)
    for one, other in zip(ours, torch.autograd.grad(naive, network.parameters()), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * other.abs().max().item())


def test_copies_are_checked():
    with pytest.raises(ValueError, match=r"copies: expected at least 1 noisy copy.*got 0"):
        nelbo(random_network(4), random_tokens(1), torch.Generator(), copies=0)


def test_more_copies_make_less_noise():
    """The variance of a gradient falls faster than with as many independent draws."""
    network, tokens = random_network(4, std=0.2), random_tokens(1)

    def spread(copies, draws):
        costs = [
            nelbo(network, tokens, torch.Generator().manual_seed(s), copies=copies).sum_nats.item()
            for s in range(draws)
        ]
        return torch.tensor(costs).var().item()

    assert spread(4, 100) < spread(1, 400) / 4


def test_clipped_times_change_the_cost_and_are_checked():
    network, tokens = random_network(4), random_tokens(2)
    hide = partial(hide_by_time, min_time=0.5, max_time=0.5)
    with pytest.raises(ValueError, match=r"min < max.*0\.5 and 0\.5"):
        nelbo(network, tokens, torch.Generator(), hide=hide)
    hide = partial(hide_by_time, min_time=0.3, max_time=0.8)
    cost = nelbo(network, tokens, torch.Generator().manual_seed(0), hide=hide)
    assert cost.num_tokens == 2 * 31
    assert cost.sum_nats > 0


def test_token_0_is_never_hidden():
    """With all else hidden (times at 1), changing token 0 changes what the first block costs."""
    network, tokens = random_network(4), random_tokens(1)
    other = tokens.clone()
    other[0, 0] = (tokens[0, 0] + 1) % (VOCAB - 1)
    all_hidden = partial(hide_by_time, min_time=0.999999)
    costs = [
        nelbo(network, t, torch.Generator().manual_seed(0), hide=all_hidden).sum_nats
        for t in (tokens, other)
    ]
    assert costs[0] != costs[1]


def test_arm_cost_is_the_likelihood_of_the_loaded_model():
    network, tokens = arm_network(), random_tokens(3)
    cost = negative_log_likelihood(network, tokens, torch.Generator())
    arm = DiTARM.from_network(network, torch.float32)
    torch.testing.assert_close(cost.sum_nats, -arm.token_log_probs(tokens).sum())
    assert cost.num_tokens == 3 * 31


@pytest.mark.parametrize(("count", "copies"), [(8, 1), (6, 3), (1, 4)])
def test_units_are_uniform_and_stratified(count, copies):
    draws = torch.stack(
        [stratified_uniform(count, copies, torch.Generator().manual_seed(s)) for s in range(2000)]
    )
    strata = (draws * count * copies).long()
    assert (strata.flatten(1).sort(dim=1).values == torch.arange(count * copies)).all()
    parts = (draws * copies).long()
    assert (parts.sort(dim=2).values == torch.arange(copies)).all()
    for place in itertools.product(range(count), range(copies)):
        assert abs(draws[:, *place].mean() - 0.5) < 4 * (1 / 12 / 2000) ** 0.5


def test_counts_and_sets_are_uniform():
    """Of a block of 3 scored and 1 given token: counts 1 to 3, and each set of a count, alike."""
    scored = torch.tensor([[False, True, True, True]])
    drawn = hide_by_count(scored, 3000, 2, torch.Generator().manual_seed(0))
    counts = drawn.hidden.sum(dim=-1)
    assert not drawn.hidden[..., 0].any()
    assert torch.bincount(counts.flatten(), minlength=4).tolist() == [0, 2000, 2000, 2000]
    assert torch.equal(drawn.weights, 3 / counts)
    codes = (drawn.hidden.long() * torch.tensor([0, 1, 2, 4])).sum(dim=-1)
    for count, sets in ((1, (1, 2, 4)), (2, (3, 5, 6))):
        found = torch.bincount(codes[counts == count], minlength=8)[list(sets)]
        assert (abs(found - 2000 / 3) < 4 * (2000 * 2 / 9) ** 0.5).all()


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
