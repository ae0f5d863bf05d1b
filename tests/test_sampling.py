"""The sampler draws from the distribution whose likelihood the lattice computes."""

import inspect
import itertools

import pytest
import torch

from tests import oracles
from tests.networks import random_model
from tube_lightning.lattice import exact_log_likelihood
from tube_lightning.networks import BlockDiffusion, DiT, DiTConfig, NoisyRows, SamplingModel
from tube_lightning.orderings import EqualChunks, block_roles
from tube_lightning.sampling import draw_tokens, sample_sequences
from tube_lightning.scoring import conditional_table

WORDS = 3  # and the mask
NUM_DRAWS = 20_000


def tiny_model(block_size, *, length=6, seed=8, cross_attn=True):
    """Weights large enough for the order to matter, outcomes all probable enough to count."""
    config = DiTConfig(
        vocab_size=WORDS + 1,
        model_length=length,
        block_size=block_size,
        hidden_dim=16,
        cond_dim=4,
        n_blocks=2,
        n_heads=2,
        cross_attn=cross_attn,
    )
    network = DiT(config)
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5, generator=generator)
    with torch.no_grad():
        for parameter in network.output_layer.parameters():
            parameter *= 0.6
        network.output_layer.linear.bias.zero_()
    return BlockDiffusion.from_network(network)


def sample(model, num_sequences, length, **options):
    options = {"seed": 0, "batch_size": 64} | options
    return torch.cat(list(sample_sequences(model, num_sequences, length, **options)))


def exact_probabilities(model, length, steps, prompt=()):
    """Of all sequences that begin with the prompt, in lexicographic order."""
    ends = itertools.product(range(WORDS), repeat=length - len(prompt))
    outcomes = torch.tensor([[*prompt, *end] for end in ends])
    roles = block_roles(length, model.block_size, len(prompt))
    table = conditional_table(model, outcomes, roles=roles)
    return exact_log_likelihood(table, steps).sum(dim=-1).exp()


def frequencies(tokens, num_given=0):
    free = tokens[:, num_given:]
    digits = WORDS ** torch.arange(free.shape[1]).flip(0)
    return (free * digits).sum(dim=1).bincount(minlength=WORDS ** free.shape[1])


def chi_square_p_value(counts, probabilities):
    torch.testing.assert_close(probabilities.sum().item(), 1.0, atol=1e-5, rtol=0)
    expected = counts.sum() * probabilities
    assert expected.min() > 5  # else the statistic does not follow its law
    statistic = ((counts - expected) ** 2 / expected).sum()
    return torch.special.gammaincc(torch.tensor((len(counts) - 1) / 2), statistic / 2).item()


REGIMES = [None, 1, 2, EqualChunks(2)]


@pytest.mark.parametrize("steps", REGIMES)
@pytest.mark.parametrize("block_size", [2, 3])
def test_a_block_has_its_exact_distribution_and_no_other(block_size, steps):
    """Chi-square over all outcomes; that of other regimes is rejected, so the test can fail."""
    model = tiny_model(block_size)
    counts = frequencies(sample(model, NUM_DRAWS, block_size, steps=steps, batch_size=5000))
    exact = exact_probabilities(model, block_size, steps)
    assert chi_square_p_value(counts, exact) > 1e-4
    for other in REGIMES:
        probabilities = exact_probabilities(model, block_size, other)
        if not torch.allclose(probabilities, exact):
            assert chi_square_p_value(counts, probabilities) < 1e-9


@pytest.mark.parametrize("steps", [None, 2])
def test_two_blocks_have_their_joint_distribution(steps):
    model = tiny_model(2)
    counts = frequencies(sample(model, NUM_DRAWS, 4, steps=steps, batch_size=5000))
    exact = exact_probabilities(model, 4, steps)
    assert chi_square_p_value(counts, exact) > 1e-4
    blocks = exact.view(WORDS**2, WORDS**2)
    independent = (blocks.sum(dim=1)[:, None] * blocks.sum(dim=0)).flatten()
    assert chi_square_p_value(counts, independent) < 1e-9


@pytest.mark.parametrize("steps", [None, 2])
def test_given_and_absent_positions(steps):
    """A prompt into the first block, a ragged last one."""
    model, prompt = tiny_model(3), torch.tensor([2])
    tokens = sample(model, NUM_DRAWS, 5, steps=steps, prompt=prompt, batch_size=5000)
    exact = exact_probabilities(model, 5, steps, prompt=[2])
    assert chi_square_p_value(frequencies(tokens, num_given=1), exact) > 1e-4


def test_full_sequence_model_is_the_case_of_one_block():
    model = tiny_model(4, length=4, cross_attn=False)
    counts = frequencies(sample(model, NUM_DRAWS, 3, steps=2, batch_size=5000))
    assert chi_square_p_value(counts, exact_probabilities(model, 3, 2)) > 1e-4


class TableModel:
    """A user's own model: a table of logits, which see the token before the block."""

    mask_id, vocab_size, block_size, max_length = WORDS, WORDS + 1, 2, 4
    device = torch.device("cpu")

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        # [token before, first and second of the block, position, token]; the mask for none
        self.table = torch.randn(4, 4, 4, 2, WORDS + 1, generator=generator) * 0.7
        self.table[..., self.mask_id] = -torch.inf

    def encode(self, tokens):
        return list(tokens.split(2, dim=1))  # a context is any object: here a list of blocks

    def empty_context(self, batch):
        return []

    def extend(self, context, tokens):
        assert not torch.is_grad_enabled()
        return [*context, tokens]

    def logits(self, context, rows):
        where = zip(rows.sequence.tolist(), rows.start.tolist(), strict=True)
        before = [context[start // 2 - 1][i, 1] if start else self.mask_id for i, start in where]
        seen = rows.tokens.where(rows.revealed, self.mask_id)
        return self.table[torch.tensor(before), seen[:, 0], seen[:, 1]][rows.needed]

    def log_probs(self, context, rows):
        log_probs = self.logits(context, rows).log_softmax(dim=-1)
        return log_probs.gather(1, rows.tokens[rows.needed][:, None])[:, 0]


def block_probability(model, before, block, ways):
    """Average over all ways to reveal the block, position by position."""
    total = 0.0
    for steps in ways:
        product = 1.0
        for position, token in enumerate(block):
            visible = oracles.set_before(steps, position)
            seen = [t if i in visible else model.mask_id for i, t in enumerate(block)]
            logits = model.table[before, seen[0], seen[1], position].double()
            product *= logits.softmax(dim=-1)[token].item()
        total += product
    return total / len(ways)


@pytest.mark.parametrize(
    ("steps", "ways"), [(None, oracles.orders(2)), (2, oracles.assignments(2, 2))]
)
def test_a_model_of_ones_own_has_its_joint_distribution(steps, ways):
    """Against all ways to reveal each block, summed without our lattice."""
    model = TableModel()
    assert isinstance(model, SamplingModel)
    exact = torch.tensor(
        [
            block_probability(model, WORDS, (a, b), ways)
            * block_probability(model, b, (c, d), ways)
            for a, b, c, d in itertools.product(range(WORDS), repeat=4)
        ],
        dtype=torch.float64,
    )
    likelihoods = exact_probabilities(model, 4, steps)
    torch.testing.assert_close(likelihoods, exact, atol=1e-6, rtol=0)
    counts = frequencies(sample(model, NUM_DRAWS, 4, steps=steps, batch_size=5000))
    assert chi_square_p_value(counts, exact) > 1e-4
    blocks = exact.view(WORDS**2, WORDS**2)
    independent = (blocks.sum(dim=1)[:, None] * blocks.sum(dim=0)).flatten()
    assert chi_square_p_value(counts, independent) < 1e-9


@pytest.mark.parametrize("lacking", ["empty_context", "extend", "logits", "device", "encode"])
def test_a_model_that_cannot_be_sampled_is_named(lacking):
    """As users see it: here the annotations are checked, and would speak first."""
    members = {name: value for name, value in vars(TableModel).items() if name != lacking}
    model = type("Unfit", (), members)()
    message = r"model: expected one that can be sampled \(.*empty_context, extend.*got Unfit"
    with pytest.raises(TypeError, match=message):
        inspect.unwrap(sample_sequences)(model, 2, 4, seed=0)


@pytest.mark.parametrize("steps", [None, 3, EqualChunks(2)])
def test_a_sequence_does_not_depend_on_its_batch(steps):
    model, prompt = random_model(4), torch.tensor([5])
    options = {"steps": steps, "prompt": prompt, "seed": 7}
    together = sample(model, 20, 30, batch_size=64, **options)
    for batch_size in (1, 7):
        assert torch.equal(sample(model, 20, 30, batch_size=batch_size, **options), together)
    some = sample(model, 3, 30, first_sequence=11, **options)
    assert torch.equal(some, together[11:14])


def test_the_seed_decides():
    model = random_model(4)
    first = sample(model, 4, 32, seed=1)
    assert torch.equal(first, sample(model, 4, 32, seed=1))
    other = sample(model, 4, 32, seed=2)
    assert (first != other).any(dim=1).all()
    assert len({tuple(row) for row in torch.cat([first, other]).tolist()}) == 8


@pytest.mark.parametrize("length", [1, 3, 4, 13, 32])
@pytest.mark.parametrize("num_given", [0, 1, 6])
def test_any_length_keeps_its_prompt(length, num_given):
    model = random_model(4)
    prompt = torch.arange(10, 10 + min(num_given, length))
    tokens = sample(model, 3, length, prompt=prompt, steps=2)
    assert tokens.shape == (3, length)
    assert (tokens[:, : len(prompt)] == prompt).all()
    assert (tokens != model.mask_id).all()
    tokens += 0  # an ordinary tensor, not one of inference mode


def test_an_empty_step_calls_no_network(monkeypatch):
    model = random_model(4)
    calls = []
    logits = BlockDiffusion.logits
    monkeypatch.setattr(BlockDiffusion, "logits", lambda *args: calls.append(args) or logits(*args))
    sample(model, 5, 8, steps=1000, prompt=torch.tensor([1]))
    assert len(calls) <= 3 + 4
    assert all(len(rows.needed) and rows.needed.any(dim=1).all() for _, _, rows in calls)
    calls.clear()
    sample(model, 5, 8, prompt=torch.arange(8))
    assert not calls


def test_progress_counts_every_token():
    done = []
    sample(random_model(4), 5, 14, batch_size=2, on_tokens=done.append)
    assert sum(done) == 5 * 14
    assert len(done) == 3 * 4  # batches, blocks


@pytest.mark.parametrize("options", [{"temperature": 1e-4}, {"nucleus": 1e-6}])
def test_the_sharpest_distribution_is_the_most_probable_token(options):
    model = random_model(4)
    tokens = sample(model, 6, 4, steps=1, **options)
    hidden = torch.zeros(1, 4, dtype=torch.bool)
    rows = NoisyRows(torch.zeros(1).long(), torch.zeros(1).long(), hidden.long(), hidden, ~hidden)
    best = model.logits(model.empty_context(1), rows).argmax(dim=-1)
    assert (tokens == best).all()


def nucleus_oracle(probabilities, nucleus):
    kept, total = {}, 0.0
    for token, p in sorted(enumerate(probabilities), key=lambda pair: (-pair[1], pair[0])):
        if total >= nucleus:
            break
        kept[token] = p
        total += p
    return [kept.get(token, 0.0) / total for token in range(len(probabilities))]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("nucleus", [0.05, 0.5, 0.9, 1.0])
def test_a_draw_has_the_nucleus_distribution(nucleus, temperature):
    """Equally spaced uniforms measure the distribution exactly, up to one in a token."""
    logits = torch.randn(8, generator=torch.Generator().manual_seed(0)) * 2
    logits[3], logits[7] = logits[1], -torch.inf
    num_draws = 10_000
    uniforms = (torch.arange(num_draws).double() + 0.5) / num_draws
    options = {"temperature": temperature, "nucleus": nucleus}
    tokens = draw_tokens(logits.expand(num_draws, -1), uniforms, **options)
    probabilities = torch.softmax(logits.double() / temperature, dim=-1).tolist()
    expected = torch.tensor(nucleus_oracle(probabilities, nucleus)) * num_draws
    counts = tokens.bincount(minlength=8)
    assert (counts - expected).abs().max() <= 1
    assert (counts[expected == 0] == 0).all()


def test_the_ends_of_the_unit_interval_are_possible_tokens():
    logits = torch.tensor([[-torch.inf, 1.0, -torch.inf, 2.0, -torch.inf]]).expand(2, -1)
    uniforms = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    assert draw_tokens(logits, uniforms).tolist() == [1, 3]
    assert draw_tokens(logits, uniforms, temperature=1e-320).tolist() == [3, 3]


def test_large_draws_are_cut_in_pieces(monkeypatch):
    logits = torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    uniforms = torch.rand(50, generator=torch.Generator().manual_seed(1)).double()
    whole = draw_tokens(logits, uniforms)
    monkeypatch.setattr("tube_lightning.sampling.token_draws._MAX_PROBABILITIES", 20)
    assert torch.equal(draw_tokens(logits, uniforms), whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_sequences": 0}, "num_sequences: expected at least 1, got 0"),
        ({"batch_size": 0}, "batch_size: expected at least 1, got 0"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"first_sequence": -3}, "first_sequence: expected at least 0, got -3"),
        ({"length": 33}, r"length: expected 1 to 32 \(the model's\), got 33"),
        ({"length": 0}, "length.*got 0"),
        ({"prompt": torch.arange(9)}, "prompt: expected at most 8 tokens, got 9"),
        ({"prompt": torch.tensor([1, 22])}, "mask id 22"),
        ({"prompt": torch.tensor([1, 23])}, r"0\.\.22.*got 23"),
        ({"steps": 0}, "steps: expected at least 1, got 0"),
        ({"temperature": 0.0}, "temperature: expected a finite number above 0, got 0.0"),
        ({"temperature": float("nan")}, "temperature.*nan"),
        ({"nucleus": 0.0}, "nucleus: expected a probability above 0 and up to 1, got 0.0"),
        ({"nucleus": 1.1}, "nucleus.*1.1"),
    ],
)
def test_bad_options_are_named_at_once(options, message):
    options = {"num_sequences": 2, "length": 8, "seed": 0} | options
    with pytest.raises(ValueError, match=message):
        sample_sequences(random_model(4), **options)


def test_non_finite_logits_name_sequence_and_position():
    model = random_model(4)
    model.trunk.embedding[9] = torch.nan
    with pytest.raises(ValueError, match=r"nan at sequence 5, position [123]"):
        sample(model, 2, 8, first_sequence=5, prompt=torch.tensor([9]))
