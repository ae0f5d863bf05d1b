"""One batch through the networks, against brute force: naive forwards, every order, by hand."""

import itertools
import math
from pathlib import Path

import pytest
import torch

from benchmarks.naive import two_stream_log_probs
from tests import oracles
from tests.networks import random_network, random_tokens, state_of
from tube_lightning.checkpoints import load_arm
from tube_lightning.evaluator import Plan, block_scores, score_batch
from tube_lightning.evaluator.continuous_time import MIN_TIME, hidden_draws
from tube_lightning.networks import BlockDiffusion
from tube_lightning.orderings import EqualChunks
from tube_lightning.protocol import Protocol
from tube_lightning.records import named_tensors

AR = Path(__file__).parent / "fixtures" / "ar"
SCORED, GIVEN, ABSENT = 0, 1, 2
TOLERANCE = 2e-5  # of a sum of four log-probabilities in fp32
LENGTHS = {7: 16, 3: 11, 12: 5}
REGIMES = {
    "nfe_1": 1,
    "nfe_2": 2,
    "nfe_4": 4,
    "ao_arm": None,
    "chunks_2": EqualChunks(2),
    "chunks_3": EqualChunks(3),
}


def documents(lengths=LENGTHS, block_size=4):
    """Documents padded to the longest, with token 0 given: ids, tokens, roles."""
    longest = max(lengths.values())
    tokens = torch.zeros(len(lengths), longest, dtype=torch.int64)
    roles = torch.full((len(lengths), math.ceil(longest / block_size) * block_size), ABSENT)
    for row, (sequence, length) in enumerate(lengths.items()):
        tokens[row, :length] = random_tokens(1, length, seed=sequence)[0]
        roles[row, :length] = SCORED
        roles[row, 0] = GIVEN
    return list(lengths), tokens, roles.view(len(lengths), -1, block_size)


def steps_by_hand(times, roles, regime):
    """At which step a block's positions are revealed: -1 for given ones, 99 for absent ones."""
    scored = [d for d, role in enumerate(roles) if role == SCORED]
    steps = [{GIVEN: -1, ABSENT: 99, SCORED: 0}[role] for role in roles]
    by_time = sorted(scored, key=lambda d: times[d])
    sizes = [1] * len(scored)
    if isinstance(regime, EqualChunks):
        sizes = [len(scored) // regime.number] * regime.number
        for chunk in range(len(scored) % regime.number):
            sizes[chunk] += 1
    chunk_of_rank = [chunk for chunk, count in enumerate(sizes) for _ in range(count)]
    for rank, d in enumerate(by_time):
        steps[d] = math.floor(times[d] * regime) if type(regime) is int else chunk_of_rank[rank]
    return steps


def naive_scores(network, tokens, roles, times, regime):
    """Score one draw a block: a forward of the whole text for each step."""
    batch, blocks, size = roles.shape
    steps = torch.tensor(
        [
            [steps_by_hand(t, r, regime) for t, r in zip(ts, rs, strict=True)]
            for ts, rs in zip(times.tolist(), roles.tolist(), strict=True)
        ]
    ).view(batch, -1)
    padded = torch.zeros(batch, blocks * size, dtype=torch.int64)
    padded[:, : tokens.shape[1]] = tokens
    total = torch.zeros(batch, blocks * size, dtype=torch.float64)
    for step in steps[(steps >= 0) & (steps < 99)].unique():
        values = two_stream_log_probs(
            state_of(network), padded, steps >= step, block_size=size, n_heads=4
        )
        total += torch.where(steps == step, values.double(), 0.0)
    return total.view(batch, blocks, size).sum(dim=-1)


def naive_tables(network, tokens, roles):
    """Tables over the scored positions of each block, for the oracles: one forward a set."""
    batch, blocks, size = roles.shape
    padded = torch.zeros(batch, blocks * size, dtype=torch.int64)
    padded[:, : tokens.shape[1]] = tokens
    rows = {}
    for revealed in itertools.product([False, True], repeat=size):
        masked = ~torch.tensor(revealed) & (roles == SCORED) | (roles == ABSENT)
        values = two_stream_log_probs(
            state_of(network), padded, masked.view(batch, -1), block_size=size, n_heads=4
        )
        rows[revealed] = values.view(roles.shape).tolist()
    tables = {}
    for at in itertools.product(range(batch), range(blocks)):
        scored = [d for d in range(size) if roles[at][d] == SCORED]
        tables[at] = []
        for code in range(2 ** len(scored)):
            visible = {d for bit, d in enumerate(scored) if code >> bit & 1}
            row = rows[tuple(d in visible for d in range(size))][at[0]][at[1]]
            tables[at].append([row[d] for d in scored])
    return tables


def all_ways(size, regime):
    if regime is None:
        return oracles.orders(size)
    if isinstance(regime, int):
        return oracles.assignments(size, regime)
    return oracles.chunkings(
        size, [size // regime.number + (c < size % regime.number) for c in range(regime.number)]
    )


@pytest.fixture(scope="module")
def network():
    return random_network(4)


@pytest.fixture(scope="module")
def model(network):
    return BlockDiffusion.from_network(network)


PROTOCOL = {"num_orderings": 5, "chunks": [2, 3], "elbo_seeds": 4, "seed": 11}


@pytest.fixture(scope="module", params=[8, 0], ids=["lattice", "sampled"])
def plan(request):
    return Plan(Protocol(exact_max_block_size=request.param, **PROTOCOL), 4)


@pytest.fixture(scope="module")
def lattice_plan():
    return Plan(Protocol(**PROTOCOL), 4)


def score(model, plan, lengths=LENGTHS, arms=None):
    ids, tokens, roles = documents(lengths, plan.block_size)
    return score_batch(model, arms or {}, tokens, roles, ids, plan)


def assert_close(ours, theirs, tolerance=TOLERANCE):
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0)


# ---- values


def test_every_ordering_in_every_regime(network, model, plan):
    """Both paths: the draws and the fixed order, by forwards of whole documents."""
    ids, tokens, roles = documents()
    scores = score(model, plan)
    assert list(scores.regimes) == list(REGIMES)
    assert scores.sequences.tolist() == [7, 3, 12]
    assert scores.num_tokens.tolist() == [[3, 4, 4, 4], [3, 4, 3, 0], [3, 1, 0, 0]]
    assert scores.seconds > 0
    times = plan.draw_times(ids, 4)
    for name, regime in REGIMES.items():
        got = scores.regimes[name].scores
        assert got.shape == (3, 4, 5)
        for k in range(5):
            want = naive_scores(network, tokens, roles, times[:, :, k], regime)
            assert_close(got[..., k], want)
        rank = (roles == SCORED).cumsum(dim=-1) - 1
        left_to_right = (rank + 0.5) / scores.num_tokens.clamp(min=1)[..., None]
        want = naive_scores(network, tokens, roles, left_to_right, regime)
        assert_close(scores.regimes[name].left_to_right, want)


def test_the_orders_matter_here(model, lattice_plan):
    """Otherwise the tests of this file could be blind to them."""
    scores = score(model, lattice_plan)
    full = scores.num_tokens == 4
    for name, regime in scores.regimes.items():
        spread = (regime.scores.amax(dim=-1) - regime.scores.amin(dim=-1))[full]
        assert (spread.min() > 0.01) == (name != "nfe_1")


def test_exact_values_by_enumeration(network, model, lattice_plan):
    """All orders, all T^L' assignments of steps, all chunkings of the scored positions."""
    _, tokens, roles = documents()
    tables = naive_tables(network, tokens, roles)
    scores = score(model, lattice_plan)
    for name, regime in REGIMES.items():
        values = scores.regimes[name]
        for at, table in tables.items():
            if scores.num_tokens[at] == 0:
                assert abs(values.exact[at]) < 1e-12
                assert abs(values.exact_elbo[at]) < 1e-12
                continue
            every = oracles.scores(table, all_ways(scores.num_tokens[at].item(), regime))
            assert values.exact[at].item() == pytest.approx(
                float(oracles.elbo_k(every)), abs=TOLERANCE
            )
            assert values.exact_elbo[at].item() == pytest.approx(
                float(oracles.elbo(every)), abs=TOLERANCE
            )


def test_sampling_has_no_exact_values(model):
    plan = Plan(Protocol(num_orderings=2, exact_max_block_size=3), 4)
    for regime in score(model, plan).regimes.values():
        assert regime.exact is None
        assert regime.exact_elbo is None
        assert regime.continuous_elbo is None


def test_blocks_of_sixteen_are_sampled():
    network = random_network(16)
    plan = Plan(Protocol(num_orderings=2, nfe=[4], seed=3), 16)
    lengths = {0: 32, 5: 21}
    ids, tokens, roles = documents(lengths, 16)
    scores = score(BlockDiffusion.from_network(network), plan, lengths)
    times = plan.draw_times(ids, 2)
    for name, regime in (("nfe_4", 4), ("ao_arm", None)):
        assert scores.regimes[name].exact is None
        for k in range(2):
            want = naive_scores(network, tokens, roles, times[:, :, k], regime)
            assert_close(scores.regimes[name].scores[..., k], want, tolerance=1e-4)


def test_arms_are_scored_on_the_same_tokens(model, plan):
    arm = load_arm(AR)
    _, tokens, roles = documents()
    scores = score(model, plan, arms={"arm": arm, "arm_ft": arm})
    per_token = torch.zeros(roles.view(3, -1).shape, dtype=torch.float64)
    per_token[:, 1:16] = arm.token_log_probs(tokens).double()
    want = torch.where(roles == SCORED, per_token.view(roles.shape), 0.0).sum(dim=-1)
    assert list(scores.arms) == ["arm", "arm_ft"]
    for likelihood in scores.arms.values():
        assert_close(likelihood, want)


def test_bytes_are_those_of_the_scored_tokens(model, plan):
    """Neither those of token 0, which is given, nor anything after the end of a document."""
    ids, tokens, roles = documents()
    token_bytes = 2 ** torch.arange(16, dtype=torch.int32).repeat(3, 1)  # a sum tells its terms
    token_bytes[2] *= 8
    scores = score_batch(model, {}, tokens, roles, ids, plan, token_bytes)
    assert scores.num_bytes.dtype == torch.int64
    assert scores.num_bytes.tolist() == [
        [2 + 4 + 8, 0xF0, 0xF00, 0xF000],
        [2 + 4 + 8, 0xF0, 0x700, 0],
        [8 * (2 + 4 + 8), 8 * 16, 0, 0],
    ]
    assert score(model, plan).num_bytes is None


def test_a_document_of_one_token(model, plan):
    scores = score(model, plan, {4: 1}, arms={"arm": load_arm(AR)})
    assert scores.num_tokens.tolist() == [[0]]
    for regime in scores.regimes.values():
        assert not regime.scores.any()
        assert not regime.left_to_right.any()
    assert not scores.arms["arm"].any()


# ---- what they depend on


def tensors(scores, row, num_blocks):
    """Everything about one sequence, by name."""
    every = {"regimes": scores.regimes, "arms": scores.arms}
    return {path: values[row, :num_blocks] for path, values in named_tensors(every)}


@pytest.mark.parametrize("sequence", LENGTHS)
def test_a_sequence_does_not_see_its_batch(model, plan, sequence):
    """Alone it is not even padded to the same number of blocks."""
    together = score(model, plan)
    alone = score(model, plan, {sequence: LENGTHS[sequence]})
    blocks = math.ceil(LENGTHS[sequence] / 4)
    mine = tensors(together, list(LENGTHS).index(sequence), blocks)
    for name, value in tensors(alone, 0, blocks).items():
        scale = 1 / MIN_TIME if name.endswith("continuous_elbo") else 1.0
        assert_close(mine[name], value, 1e-5 * max(1.0, scale / 10))


def test_slices_change_nothing(model, lattice_plan, monkeypatch):
    whole = score(model, lattice_plan)
    for most in (1, 2 * 4 * 4 * 16):  # one sequence at a time, two
        monkeypatch.setattr(block_scores, "_MAX_TABLE", most)
        sliced = score(model, lattice_plan)
        assert torch.equal(sliced.num_tokens, whole.num_tokens)
        for row in range(3):
            mine = tensors(whole, row, 4)
            for name, value in tensors(sliced, row, 4).items():
                assert_close(mine[name], value)


def test_both_paths_agree(model, lattice_plan):
    sampled = Plan(Protocol(exact_max_block_size=0, **PROTOCOL), 4)
    exactly, sampled = score(model, lattice_plan), score(model, sampled)
    for name, regime in exactly.regimes.items():
        other = sampled.regimes[name]
        assert_close(regime.scores, other.scores)
        assert_close(regime.left_to_right, other.left_to_right)
    assert_close(
        exactly.regimes["ao_arm"].continuous_elbo, sampled.regimes["ao_arm"].continuous_elbo, 1e-3
    )


def test_a_seed_is_another_draw(model):
    first, again, second = (
        score(model, Plan(Protocol(num_orderings=3, seed=seed), 4)).regimes["ao_arm"]
        for seed in (0, 0, 1)
    )
    assert torch.equal(first.scores, again.scores)
    assert (first.scores[0, 1:] - second.scores[0, 1:]).abs().max() > 0.01
    assert_close(first.exact, second.exact)
    assert_close(first.left_to_right, second.left_to_right)


def test_more_orderings_begin_with_the_fewer(model):
    few, many = (
        score(model, Plan(Protocol(num_orderings=count), 4)).regimes["ao_arm"].scores
        for count in (3, 9)
    )
    assert_close(many[..., :3], few)


# ---- the ELBO in continuous time


def test_continuous_elbo_of_each_draw(network, model, plan):
    """(1 / t) times the hidden positions' log-probabilities, looked up in naive tables."""
    ids, tokens, roles = documents()
    tables = naive_tables(network, tokens, roles)
    draws = hidden_draws(plan.protocol.seed, ids, roles, plan.protocol.elbo_seeds)
    scores = score(model, plan)
    assert all(
        (regime.continuous_elbo is None) == (name != "ao_arm")
        for name, regime in scores.regimes.items()
    )
    got = scores.regimes["ao_arm"].continuous_elbo
    for at, table in tables.items():
        scored = [d for d in range(4) if roles[at][d] == SCORED]
        for k in range(plan.protocol.elbo_seeds):
            hidden = draws.hidden[at][k].tolist()
            code = sum(2**bit for bit, d in enumerate(scored) if not hidden[d])
            terms = [table[code][bit] for bit, d in enumerate(scored) if hidden[d]]
            rate = draws.rate[at][k].item()
            assert got[at][k].item() == pytest.approx(math.fsum(terms) / rate, abs=TOLERANCE / rate)


def test_continuous_elbo_averages_to_the_exact_one(model):
    """Within 4 standard errors of 4,000 draws, block by block."""
    plan = Plan(Protocol(num_orderings=1, nfe=[1], elbo_seeds=4000, seed=2), 4)
    regime = score(model, plan, {9: 16}).regimes["ao_arm"]
    draws = regime.continuous_elbo[0]
    error = draws.std(dim=-1) / math.sqrt(4000)
    assert (error < 0.1 * regime.exact_elbo[0].abs()).all()
    assert ((draws.mean(dim=-1) - regime.exact_elbo[0]).abs() < 4 * error).all()


def test_masking_rates_are_spread_over_a_sequences_own_blocks():
    _, _, roles = documents()
    draws = hidden_draws(0, list(LENGTHS), roles, num_draws=200)
    for row, blocks in enumerate((4, 3, 2)):
        uniform = (draws.rate[row, :blocks] - MIN_TIME) / (1 - MIN_TIME)
        assert ((uniform >= 0) & (uniform < 1)).all()
        spaced = (uniform - uniform[:1]) % 1.0
        want = torch.arange(blocks, dtype=torch.float64)[:, None] / blocks
        assert_close(spaced, want.expand_as(spaced), 1e-12)
    uniform = (draws.rate - MIN_TIME) / (1 - MIN_TIME)
    assert uniform[:, 0].mean().item() == pytest.approx(0.5, abs=4 / math.sqrt(12 * 600))
    scored = (roles == SCORED)[:, :, None]
    assert not (draws.hidden & ~scored).any()
    assert torch.equal(draws.revealed, (scored & ~draws.hidden) | (roles == GIVEN)[:, :, None])
    share = draws.hidden.sum().item() / (draws.rate[..., None] * scored).sum().item()
    assert share == pytest.approx(1, abs=0.03)  # 5,800 coins: 4 standard errors
