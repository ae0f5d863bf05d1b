"""The scoring engine against the naive two-stream forward, on every path."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.naive import one_stream_log_probs, two_stream_log_probs
from tests.networks import LENGTH, VOCAB, random_model, random_network, random_tokens, state_of
from tube_lightning.bounds import elbo_k
from tube_lightning.checkpoints import load_block_model
from tube_lightning.lattice import (
    exact_elbo,
    exact_log_likelihood,
    score_orderings,
    scored_table,
)
from tube_lightning.networks import BlockDiffusion, DiT, NoisyRows
from tube_lightning.orderings import (
    EqualChunks,
    RevealedSets,
    Role,
    all_orderings,
    all_sets,
    block_roles,
    distinct_sets,
    reveal_steps,
    reveal_times,
)
from tube_lightning.scoring import conditional_rows, conditional_table

TOLERANCE = 1e-5
FIXTURES = Path(__file__).parent / "fixtures"


def some_sets(block_size, count=12, seed=3):
    """The whole lattice where it is small, random sets and the two extremes where it is not."""
    if block_size <= 3:
        return all_sets(block_size)
    generator = torch.Generator().manual_seed(seed)
    sets = torch.rand(count, block_size, generator=generator) < 0.5
    sets[0], sets[1] = False, True
    return sets


def naive_table(network, tokens, sets, roles):
    """One naive forward a set, the same set in every block; absent positions hold masks."""
    batch, length = tokens.shape
    blocks, size = roles.shape[-2:]
    flat = roles.expand(batch, blocks, size).reshape(batch, -1)
    padded = torch.zeros(batch, blocks * size, dtype=torch.int64)
    padded[:, :length] = tokens
    table = []
    for revealed in sets:
        hidden = ~revealed.repeat(blocks) & (flat == Role.SCORED)
        masked = hidden | (flat == Role.ABSENT)
        options = {"n_heads": network.config.n_heads}
        if network.config.cross_attn:
            values = two_stream_log_probs(
                state_of(network), padded, masked, block_size=size, **options
            )
        else:
            values = one_stream_log_probs(state_of(network), padded, masked, **options)
        table.append(torch.where(hidden, values, 0.0).view(batch, blocks, size))
    return torch.stack(table, dim=2).double()


@pytest.mark.parametrize("block_size", [1, 2, 4, 8, 16])
def test_table_equals_naive_forward(block_size):
    network = random_network(block_size)
    model = BlockDiffusion.from_network(network)
    tokens, sets = random_tokens(2), some_sets(block_size)
    expected = naive_table(network, tokens, sets, block_roles(LENGTH, block_size, 0))
    for budget in (1, 3 * block_size, 1000):
        table = conditional_table(model, tokens, sets, token_budget=budget)
        torch.testing.assert_close(table, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("block_size", [4, 16])
def test_prefixes_of_many_lengths_in_one_call_equal_naive_forward(block_size):
    network = random_network(block_size, length=80)
    tokens, sets = random_tokens(2, 80), some_sets(block_size, count=4)
    table = conditional_table(
        BlockDiffusion.from_network(network), tokens, sets, token_budget=10_000
    )
    expected = naive_table(network, tokens, sets, block_roles(80, block_size, 0))
    torch.testing.assert_close(table, expected, atol=TOLERANCE, rtol=0)


def test_blocks_may_be_any_of_many():
    network = random_network(4, length=80)
    model = BlockDiffusion.from_network(network)
    tokens = random_tokens(2, 80)
    context = model.encode(tokens)
    block = torch.randint(0, 40, (30,), generator=torch.Generator().manual_seed(5)).sort().values
    hidden = torch.ones(30, 4, dtype=torch.bool)
    rows = NoisyRows(block // 20, block % 20 * 4, tokens.view(40, 4)[block], ~hidden, hidden)
    expected = naive_table(network, tokens, ~hidden[:1], block_roles(80, 4, 0)).view(40, 4)
    got = model.log_probs(context, rows).double()
    torch.testing.assert_close(got, expected[block].flatten(), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(
    ("length", "block_size", "num_given"), [(30, 4, 1), (21, 8, 3), (17, 16, 5)]
)
def test_ragged_and_given_positions_equal_naive_forward(length, block_size, num_given):
    network = random_network(block_size)
    model = BlockDiffusion.from_network(network)
    tokens, sets = random_tokens(2, length), some_sets(block_size)
    roles = block_roles(length, block_size, num_given)
    expected = naive_table(network, tokens, sets, roles)
    table = conditional_table(model, tokens, sets, roles=roles, token_budget=40)
    torch.testing.assert_close(table, expected, atol=TOLERANCE, rtol=0)
    unscored = (roles != Role.SCORED)[:, None].expand(-1, len(sets), -1)
    assert (table[:, unscored] == 0).all()


def test_each_sequence_may_have_its_own_roles():
    network = random_network(4)
    model = BlockDiffusion.from_network(network)
    tokens = random_tokens(2, 16)
    roles = torch.stack([block_roles(16, 4, 1), block_roles(16, 4, 6)])
    roles[1, 3, 2:] = Role.ABSENT  # a shorter document, padded
    table = conditional_table(model, tokens, roles=roles)
    for i in range(2):
        alone = conditional_table(model, tokens[i : i + 1], roles=roles[i])
        torch.testing.assert_close(table[i], alone[0], atol=TOLERANCE, rtol=0)
    expected = naive_table(network, tokens, all_sets(4), roles)
    torch.testing.assert_close(table, expected, atol=TOLERANCE, rtol=0)


def test_full_sequence_model_is_the_case_of_one_block():
    network = random_network(LENGTH, cross_attn=False)
    model = BlockDiffusion.from_network(network)
    tokens, sets = random_tokens(2), some_sets(LENGTH)
    expected = naive_table(network, tokens, sets, block_roles(LENGTH, LENGTH, 0))
    table = conditional_table(model, tokens, sets, token_budget=100)
    torch.testing.assert_close(table, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", ["bd3lm_block4", "bd3lm_block4/last.ckpt", "bd3lm_block8", "mdlm"])
def test_golden_networks(name):
    """Masks drawn by the original code, and what it makes of them."""
    model = load_block_model(FIXTURES / name)
    golden = json.loads((FIXTURES / name.split("/")[0] / "expected.json").read_text())
    assert model.mask_id == golden["mask_id"]
    tokens = torch.tensor(golden["tokens"])
    for case in golden["cases"]:
        hidden = torch.tensor(case["masked"]).bool().view(-1, model.block_size)
        sets = RevealedSets(~hidden, hidden, torch.arange(len(hidden)), index=())
        expected = torch.tensor(case["logp_true"], dtype=torch.float64)
        scores = conditional_rows(model, tokens, sets).view_as(expected)
        torch.testing.assert_close(scores, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("num_given", [0, 1, 6])
def test_sampled_sets_give_the_scores_of_the_full_lattice(num_given):
    """Fresh orderings for each block, all regimes together, ragged end."""
    model, tokens = random_model(4), random_tokens(3, 30)
    roles = block_roles(30, 4, num_given)
    table = conditional_table(model, tokens, roles=roles)
    times = reveal_times(0, range(3), range(8), num_orderings=5, size=4)
    here = roles[None, :, None].expand(3, -1, 1, -1)
    regimes = (None, 1, 2, 4, EqualChunks(2))
    steps = [reveal_steps(times, regime, here).flatten(0, 1) for regime in regimes]
    sets = distinct_sets(*steps)
    rows = conditional_rows(model, tokens, sets, token_budget=50)
    for index, regime in zip(sets.index, regimes, strict=True):
        scores = rows[index, torch.arange(4)].sum(dim=-1).view(3, 8, 5)
        expected = score_orderings(table, times, regime, roles)
        torch.testing.assert_close(scores, expected, atol=4 * TOLERANCE, rtol=0)


@pytest.mark.parametrize("exact", [exact_log_likelihood, exact_elbo])
def test_unscored_positions_leave_the_exact_likelihood_alone(exact):
    """The lattice over all positions equals the lattice over the scored ones.

    Except for equal chunks, where an unscored position would fill a place.
    """
    model, tokens = random_model(4), random_tokens(2, 15)
    roles = block_roles(15, 4, 2)
    table = conditional_table(model, tokens, roles=roles)
    for block in (0, 3):
        reduced = scored_table(table[:, block], roles[block])
        assert reduced.shape == (2, 2 ** (2 + block // 3), 2 + block // 3)
        for steps in (None, 1, 3):
            torch.testing.assert_close(exact(table[:, block], steps), exact(reduced, steps))
        assert (exact(table[:, block], EqualChunks(2)) != exact(reduced, EqualChunks(2))).all()


def test_exact_equal_chunks_are_what_sampled_ones_average_to():
    """All orders of a block with a given position: the mean over them is the exact value."""
    model, tokens = random_model(4), random_tokens(1, 4)
    roles = block_roles(4, 4, 1)
    table = conditional_table(model, tokens, roles=roles)[0, 0]
    scores = score_orderings(table, all_orderings(4), EqualChunks(2), roles[0])
    exact = exact_log_likelihood(scored_table(table, roles[0]), EqualChunks(2))
    torch.testing.assert_close(elbo_k(scores), exact)


def test_autocast_changes_nothing():
    model, tokens = random_model(4), random_tokens(2)
    table = conditional_table(model, tokens)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(conditional_table(model, tokens), table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block": torch.tensor([0, 16])}, "a block of the 2 sequences.*row 1"),
        ({"block": torch.tensor([-1, 0])}, "a block of the 2 sequences.*row 0"),
        ({"revealed": torch.ones(2, 4, dtype=torch.bool)}, "to be hidden.*row 0"),
        ({"block": torch.tensor([0, 7])}, "before the end at 30.*row 1"),
    ],
)
def test_bad_sets_are_named(change, message):
    everything = torch.ones(2, 4, dtype=torch.bool)
    sets = RevealedSets(~everything, everything, torch.tensor([0, 1]), index=())
    with pytest.raises(ValueError, match=message):
        conditional_rows(random_model(4), random_tokens(2, 30), replace(sets, **change))


def test_batch_neighbours_do_not_matter_and_runs_repeat():
    model, tokens = random_model(4), random_tokens(5)
    together = conditional_table(model, tokens)
    assert torch.equal(together, conditional_table(model, tokens))
    alone = torch.cat([conditional_table(model, t[None]) for t in tokens])
    torch.testing.assert_close(together, alone, atol=TOLERANCE, rtol=0)


def test_probabilities_sum_to_one_over_the_vocabulary():
    """Vary the token at one position: its own probability is all that may use it."""
    model = random_model(4)
    tokens = random_tokens(1).repeat(VOCAB - 1, 1)
    for position in (0, 9, 31):
        varied = tokens.clone()
        varied[:, position] = torch.arange(VOCAB - 1)
        table = conditional_table(model, varied)[:, position // 4]
        for code in range(16):
            if not (code >> (position % 4)) & 1:
                total = table[:, code, position % 4].exp().sum()
                torch.testing.assert_close(total, torch.ones_like(total), atol=1e-6, rtol=0)


def test_bfloat16_trunk_is_close_and_its_table_is_float64():
    network, tokens = random_network(4, std=0.1), random_tokens(2)
    exact = conditional_table(BlockDiffusion.from_network(network), tokens)
    rough = conditional_table(BlockDiffusion.from_network(network, torch.bfloat16), tokens)
    assert rough.dtype == torch.float64
    difference = (rough - exact).abs()
    assert 0 < difference.max() < 0.05


def test_moving_the_module_keeps_the_trunks_dtypes():
    model = random_model(4).to(torch.bfloat16)
    assert model.trunk.layers[0].qkv.dtype == model.trunk.head[0].dtype == torch.float32
    meta = random_model(4).to("meta")
    assert meta.trunk.embedding.is_meta
    assert meta.trunk.layers[0].mlp_out[0].is_meta


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t[1].__setitem__(5, VOCAB), r"0\.\.22.*got 23 in sequence 1 at position 5"),
        (lambda t: t[1].__setitem__(5, -1), r"0\.\.22.*got -1 in sequence 1 at position 5"),
        (lambda t: t[0].__setitem__(7, VOCAB - 1), r"mask id 22.*sequence 0 at position 7"),
    ],
)
def test_bad_tokens_are_named(change, message):
    tokens = random_tokens(2)
    change(tokens)
    with pytest.raises(ValueError, match=message):
        conditional_table(random_model(4), tokens)


def test_too_long_text_is_refused():
    with pytest.raises(ValueError, match="36"):
        conditional_table(random_model(4), random_tokens(1, 36))


def test_non_finite_log_probabilities_name_sequence_and_position():
    network, tokens = random_network(4), random_tokens(2)
    tokens[tokens == 7] = 8
    tokens[1, 13] = 7
    with torch.no_grad():
        network.vocab_embed.embedding[7] = torch.nan
    with pytest.raises(ValueError, match=r"nan at sequence 1, position \d+"):
        conditional_table(BlockDiffusion.from_network(network), tokens)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sets": torch.zeros(3, 5, dtype=torch.bool)}, r"\[sets, 4\].*\(3, 5\)"),
        ({"roles": block_roles(28, 4)}, r"roles.*8, 4"),
        ({"token_budget": 0}, "token_budget.*0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        conditional_table(random_model(4), random_tokens(1), **options)


def test_large_blocks_need_explicit_sets():
    with pytest.raises(ValueError, match="sets: expected some for blocks of 32"):
        conditional_table(random_model(32, cross_attn=False), random_tokens(1))


def test_roles_must_leave_the_padding_absent():
    with pytest.raises(ValueError, match="after token 30 absent"):
        conditional_table(random_model(4), random_tokens(1, 30), roles=block_roles(32, 4))


def train_a_little(network, tokens, steps=30):
    """Ordinary masked prediction on whole sequences, without the package's training code."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    network.eval()
    size = network.config.block_size
    for _ in range(steps):
        hidden = torch.rand(tokens.shape, generator=generator) < 0.5
        trunk = network.fold()
        x = trunk.embedding[tokens.masked_fill(hidden, network.config.mask_id)]
        x = x.view(-1, size, x.shape[-1])  # each block on its own: enough to learn order
        rotary = trunk.rotary(torch.arange(size))
        for layer in trunk.layers:
            q, k, v = (p.transpose(1, 2) for p in layer.project(x, rotary))
            attended = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            x = layer.finish(x, attended.transpose(1, 2))
        logits = trunk.logits(x.view(*tokens.shape, -1))[hidden]
        loss = torch.nn.functional.cross_entropy(logits, tokens[hidden])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def test_a_trained_network_scores_orders_differently():
    """Otherwise every test above could be blind to order."""
    torch.manual_seed(0)
    network = DiT(random_network(4).config)
    tokens = torch.arange(LENGTH).remainder(5).repeat(8, 1) + torch.arange(8)[:, None] % 3
    before = conditional_table(BlockDiffusion.from_network(network), tokens[:1])
    assert torch.allclose(before[..., 0, :], before[..., 0, :1])  # starts order-free: zero gates
    assert train_a_little(network, tokens) < 2.5
    table = conditional_table(BlockDiffusion.from_network(network), tokens[:1])
    times = reveal_times(0, [0], num_orderings=16, size=4)[0]
    scores = score_orderings(table[0], times)
    assert (scores.amax(dim=-1) - scores.amin(dim=-1)).min() > 0.01
