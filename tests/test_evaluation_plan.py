"""What is scored: regimes, draws, protocols; and which batches go to which rank."""

import itertools
import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from tests.networks import random_model, random_tokens
from tube_lightning.data import TokenSequences, check_order, sequence_order
from tube_lightning.evaluator import EvaluationData, Plan, score_batch
from tube_lightning.evaluator.batches import NO_BATCH
from tube_lightning.evaluator.plan import bank_times, fresh_times
from tube_lightning.protocol import Protocol
from tube_lightning.regimes import ANY_ORDER, EqualChunks, Regime, list_regimes
from tube_lightning.scores import ScoreFiles

# ---- regimes and protocols


@pytest.mark.parametrize(
    ("block_size", "nfe"),
    [
        (1, [1]),
        (2, [1, 2]),
        (3, [1, 2, 3]),
        (4, [1, 2, 4]),
        (6, [1, 2, 4, 6]),
        (8, [1, 2, 4, 8]),
        (16, [1, 2, 4, 8, 16]),
    ],
)
def test_default_regimes(block_size, nfe):
    assert [regime.steps for regime in list_regimes(block_size)] == [*nfe, None]


def test_chosen_regimes():
    regimes = list_regimes(4, nfe=[3, 100], chunks=[2])
    assert [r.name for r in regimes] == ["nfe_3", "nfe_100", "ao_arm", "chunks_2"]
    assert [r.steps for r in regimes] == [3, 100, None, EqualChunks(2)]
    assert list_regimes(4, nfe=[]) == (ANY_ORDER,)


@pytest.mark.parametrize("steps", [None, 1, 2, 16, EqualChunks(1), EqualChunks(12)])
def test_names_are_read_back(steps):
    regime = Regime(steps)
    assert Regime.parse(regime.name) == regime
    assert regime.is_random == (steps not in (1, EqualChunks(1)))


@pytest.mark.parametrize("name", ["", "nfe", "nfe_", "nfe_0", "nfe_-2", "chunks_x", "ao_arm_2"])
def test_names_of_no_regime_are_refused(name):
    with pytest.raises(ValueError, match=rf"^regime: expected .* got '{name}'$"):
        Regime.parse(name)


@pytest.mark.parametrize("value", [0, -1, True])
@pytest.mark.parametrize("name", ["nfe", "chunks"])
def test_bad_numbers_of_steps_are_named(name, value):
    with pytest.raises(ValueError, match=rf"{name}: expected .* of at least 1, got {value!r}"):
        Protocol(**{name: [1, value]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_orderings": 0}, "num_orderings: expected a whole number of at least 1, got 0"),
        ({"num_reseeds": -1, "bank": True}, r"num_reseeds: .* at least 0, got -1"),
        ({"num_reseeds": 3}, "num_reseeds: expected 0 without a bank, got 3"),
        ({"bank": True}, "num_reseeds: expected at least 1 re-seed of a bank, got 0"),
        ({"elbo_seeds": -2}, r"elbo_seeds: .* at least 0, got -2"),
        ({"elbo_seeds": True}, r"elbo_seeds: .* at least 0, got True"),
        ({"exact_max_block_size": -1}, r"exact_max_block_size: .* at least 0, got -1"),
        ({"exact_max_block_size": 17}, "exact_max_block_size: expected at most 16, got 17"),
        ({"seed": -1}, r"seed: .* at least 0, got -1"),
    ],
)
def test_bad_protocols_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Protocol(**options)


def test_plans_of_a_protocol():
    assert [Protocol().orderings_of(size) for size in (1, 4, 5, 8, 9, 16)] == [
        *(24, 24),
        *(64, 64),
        *(128, 128),
    ]
    plan = Plan(Protocol(), 8)
    assert (plan.num_orderings, plan.exact, plan.protocol.elbo_seeds) == (64, True, 0)
    assert plan.exact_regimes == plan.regimes == list_regimes(8)
    assert plan.draw_times([3], 2).shape == (1, 2, 64, 8)
    plan = Plan(Protocol(num_orderings=6, elbo_seeds=2, seed=9), 16)
    assert (plan.num_orderings, plan.exact, plan.exact_regimes) == (6, False, ())
    assert (plan.protocol.elbo_seeds, plan.protocol.seed) == (2, 9)


def test_regimes_that_are_too_large_to_be_exact():
    """T steps need sums over all subsets of all sets: blocks of 16 have any-order and chunks."""
    plan = Plan(Protocol(exact_max_block_size=16, nfe=[2], chunks=[4]), 16)
    assert plan.exact
    assert plan.exact_regimes == (ANY_ORDER, Regime(EqualChunks(4)))


# ---- draws


def orders_of(times):
    return [tuple(order) for order in times.argsort(dim=-1).tolist()]


def test_a_bank_of_24_has_every_order_of_four():
    times = bank_times(3, 0, 24, 4)
    assert times.shape == (24, 4)
    assert ((times >= 0) & (times < 1)).all()
    assert sorted(orders_of(times)) == list(itertools.permutations(range(4)))
    for other in (bank_times(4, 0, 24, 4), bank_times(3, 1, 24, 4)):
        assert sorted(orders_of(other)) == sorted(orders_of(times))
        assert not torch.equal(other, times)


def test_all_blocks_share_the_banks():
    plan = Plan(Protocol(bank=True, num_banks=3, num_reseeds=1, num_orderings=10, seed=3), 4)
    times = plan.draw_times([0, 5], 6)
    assert times.shape == (1, 6, 30, 4)
    assert (times == times[:, :1]).all()
    assert torch.equal(times, plan.draw_times([99], 6))
    for number in range(3):
        own = times[0, 0, 10 * number : 10 * number + 10]
        assert torch.equal(own, bank_times(3, number, 10, 4))


def test_a_bank_where_orders_repeat_has_each_equally_often():
    for size, count in ((1, 24), (2, 24), (3, 12), (4, 72)):
        orders = orders_of(bank_times(0, 0, count, size))
        every = list(itertools.permutations(range(size)))
        assert {orders.count(order) for order in every} == {count // len(every)}


def test_times_of_an_enumerated_bank_are_uniform():
    """T-step regimes read them: steps must be as if drawn. Within 4 standard errors."""
    times = bank_times(0, 0, 24 * 200, 4)
    first_half = (times < 0.5).double().mean().item()
    assert first_half == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(times.numel()))
    together = ((times < 0.5).sum(dim=-1) == 4).double().mean().item()
    assert together == pytest.approx(1 / 16, abs=4 * math.sqrt(15) / 16 / math.sqrt(4800))


def test_other_banks_are_samples():
    for size, count in ((4, 10), (8, 64)):
        times = bank_times(0, 0, count, size)
        assert times.shape == (count, size)
        assert len(set(orders_of(times))) > count / 2


def test_fresh_draws_are_named_by_seed_sequence_and_block():
    together = fresh_times(1, 5, 4, [2, 9], 3)
    assert torch.equal(together[1:], fresh_times(1, 5, 4, [9], 3))
    assert torch.equal(together[:, :2], fresh_times(1, 5, 4, [2, 9], 2))
    assert not torch.equal(together, fresh_times(2, 5, 4, [2, 9], 3))
    assert len(together.unique()) == together.numel()


def test_all_orders_of_a_bank_average_to_the_exact_value():
    """ELBO_24 over a complete bank is log p itself, under any order."""
    plan = Plan(Protocol(bank=True, num_reseeds=1), 4)
    tokens = random_tokens(2, 8)
    roles = torch.zeros(2, 2, 4, dtype=torch.int64)
    roles[:, 0, 0] = 1
    regime = score_batch(random_model(4), {}, tokens, roles, [0, 1], plan).regimes["ao_arm"]
    averaged = regime.scores.logsumexp(dim=-1) - math.log(24)
    torch.testing.assert_close(averaged, regime.exact, atol=1e-12, rtol=0)
    assert (regime.scores.std(dim=-1) > 0.01).all()


# ---- batches


def numbered(num_sequences, length=6, lengths=None):
    """Sequences whose tokens are their number and one, up to their length."""
    tokens = torch.arange(1, num_sequences + 1)[:, None].repeat(1, length)
    if lengths is not None:
        tokens[torch.arange(length) >= torch.tensor(lengths)[:, None]] = 0
        lengths = torch.tensor(lengths)
    token_bytes = (10 * tokens + torch.arange(length)).int()
    documents = torch.arange(num_sequences).int()[:, None].expand_as(tokens) // 2
    return TokenSequences(
        tokens, "numbers", "none", 0, lengths, token_bytes=token_bytes, documents=documents
    )


def data_of(text, folder, batch_size=3, **options):
    files = ScoreFiles(folder)
    return EvaluationData(text, batch_size=batch_size, block_size=4, files=files, **options)


def spread(count):
    """Sort by binary digits read backwards, as if after a decimal point."""
    digits = len(f"{count - 1:b}")
    return sorted(range(count), key=lambda i: f"{i:0{digits}b}"[::-1])


def on_rank(data, rank, world_size, words):
    """Ask as one rank of several would: rank 0 says what remains, and all hear the same."""

    def broadcast(numbers):
        if rank == 0:
            words.append(list(numbers))
        return list(words[0])

    data.trainer = SimpleNamespace(
        global_rank=rank, world_size=world_size, strategy=SimpleNamespace(broadcast=broadcast)
    )
    return data.test_dataloader()


def finish(folder, *numbers):
    folder.mkdir(exist_ok=True)
    for number in numbers:
        (folder / f"batch_{number:06}.parquet").touch()


@pytest.mark.parametrize("done", [(), (0, 2)])
@pytest.mark.parametrize("world_size", range(1, 6))
@pytest.mark.parametrize("num_sequences", [1, 9, 10, 14])
def test_every_batch_exactly_once(tmp_path, num_sequences, world_size, done):
    """With fewer batches than ranks too, where some have turns without a batch."""
    text, order = numbered(num_sequences), spread(num_sequences)
    num_batches = math.ceil(num_sequences / 3)
    done = [number for number in done if number < num_batches]
    finish(tmp_path, *done)
    words, shares = [], []
    for rank in range(world_size):
        shares.append(on_rank(data_of(text, tmp_path), rank, world_size, words))
        finish(tmp_path, num_batches - 1)  # rank 0 may finish a batch before the others look
    remaining = [number for number in range(num_batches) if number not in done]
    turns = math.ceil(len(remaining) / world_size)
    seen, sequences = [], []
    for share in shares:
        batches = list(share)
        assert len(share) == len(batches) == turns
        assert share.remaining == remaining
        assert share.finished == done
        for batch in batches:
            assert (batch.number == NO_BATCH) == (not batch.sequences)
            assert batch.tokens.shape == (len(batch.sequences), 6)
            assert batch.roles.shape == (len(batch.sequences), 2, 4)
            assert batch.tokens[:, 0].tolist() == [i + 1 for i in batch.sequences]
            assert batch.token_bytes.tolist() == text.token_bytes[batch.sequences].tolist()
            assert batch.documents.tolist() == text.documents[batch.sequences].tolist()
            sequences += batch.sequences
            if batch.number != NO_BATCH:
                seen.append(batch.number)
                first = 3 * batch.number
                assert batch.sequences == order[first : first + 3]
    assert sorted(seen) == remaining
    assert sorted(sequences) == sorted(s for i, s in enumerate(order) if i // 3 not in done)


@pytest.mark.parametrize("num_sequences", [1, 2, 5, 16, 100, 325])
def test_a_part_of_a_text_is_spread_over_it_and_more_only_add(num_sequences):
    order = sequence_order(num_sequences, "spread")
    assert order == spread(num_sequences)
    assert sequence_order(num_sequences, "contiguous") == list(range(num_sequences))
    for most in {m for m in (4, 16, 64) if m < num_sequences}:
        places = sorted(order[:most])
        gaps = [b - a for a, b in pairwise([*places, num_sequences])]
        assert max(gaps) <= 4 * num_sequences / most


def test_an_order_that_is_none():
    with pytest.raises(ValueError, match="order: expected one of spread, contiguous, got 'random'"):
        check_order("random")


@pytest.mark.parametrize("order", ["spread", "contiguous"])
def test_more_batches_only_add(tmp_path, order):
    text = numbered(14)
    whole = list(data_of(text, tmp_path, order=order).test_dataloader())
    for number in range(1, 7):
        some = data_of(text, tmp_path, order=order, num_batches=number)
        assert some.num_batches == min(number, 5)
        found = [batch.sequences for batch in some.test_dataloader()]
        assert found == [batch.sequences for batch in whole[:number]]


def test_batches_do_not_depend_on_ranks_or_what_is_done(tmp_path):
    text = numbered(14, lengths=[1, 6, 3, 2, 5, 1, 1, 2, 2, 6, 4, 4, 3, 1])
    alone = {batch.number: batch for batch in data_of(text, tmp_path).test_dataloader()}
    finish(tmp_path, 1, 3)
    words = []
    for rank in range(2):
        for batch in on_rank(data_of(text, tmp_path), rank, 2, words):
            if batch.sequences:
                other = alone[batch.number]
                assert batch.sequences == other.sequences
                assert torch.equal(batch.tokens, other.tokens)
                assert torch.equal(batch.roles, other.roles)
                assert torch.equal(batch.token_bytes, other.token_bytes)


def test_documents_are_padded_to_the_longest_of_their_batch(tmp_path):
    text = numbered(5, lengths=[2, 5, 1, 3, 2])
    first, second = data_of(text, tmp_path, order="contiguous").test_dataloader()
    assert first.tokens.tolist() == [[1, 1, 0, 0, 0], [2, 2, 2, 2, 2], [3, 0, 0, 0, 0]]
    assert first.roles.tolist() == [
        [[1, 0, 2, 2], [2, 2, 2, 2]],
        [[1, 0, 0, 0], [0, 2, 2, 2]],
        [[1, 2, 2, 2], [2, 2, 2, 2]],
    ]
    assert second.tokens.tolist() == [[4, 4, 4], [5, 5, 0]]
    assert second.token_bytes.tolist() == [[40, 41, 42], [50, 51, 2]]
    assert second.roles.tolist() == [[[1, 0, 0, 2]], [[1, 0, 2, 2]]]


def test_bytes_that_are_not_known(tmp_path):
    text = replace(numbered(4), token_bytes=None)
    words = []
    shares = [on_rank(data_of(text, tmp_path), rank, 3, words) for rank in range(3)]
    assert [batch.token_bytes for share in shares for batch in share] == [None] * 3


def test_what_remains(tmp_path):
    data = data_of(numbered(10), tmp_path / "scores", batch_size=4)
    assert data.num_batches == 3
    assert data.remaining() == [0, 1, 2]
    finish(tmp_path / "scores", 1, 7)
    assert data.remaining() == [0, 2]
    batches = data.test_dataloader()
    assert [batch.number for batch in batches] == [0, 2]
    assert batches.finished == [1]
    finish(tmp_path / "scores", 0, 2)
    assert data.remaining() == []
    assert list(data.test_dataloader()) == []


def test_a_batch_has_at_least_one_sequence(tmp_path):
    with pytest.raises(ValueError, match=r"batch_size: .* at least 1, got 0"):
        data_of(numbered(3), tmp_path, batch_size=0)
