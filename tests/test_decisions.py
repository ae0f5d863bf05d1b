"""Deciding between texts: laws that hold question by question, and what is refused."""

import math
from dataclasses import replace

import pytest
import torch

from tube_lightning.bounds import elbo_k
from tube_lightning.decisions import LEAST_ORDERINGS, Choice, decide
from tube_lightning.randomness import RESAMPLES

INF = math.inf


def sampled(seed, blocks=2, num_orderings=16, spread=0.5, mean=-4.0, **other):
    """Scores on a grid of 1/64 nat, so that shifting them is exact."""
    generator = torch.Generator().manual_seed(seed)
    scores = mean + spread * torch.randn(blocks, num_orderings, generator=generator).double()
    return Choice(scores=(scores * 64).round() / 64, **other)


def shifted(choice, nats):
    return replace(choice, exact_nats=choice.exact_nats + nats)


def questions():
    """Near and far, of one to four blocks, exact and mixed."""
    for seed in range(8):
        first = sampled(4 * seed, blocks=1 + seed % 4)
        second = sampled(4 * seed + 1, blocks=1 + (seed + 1) % 4, num_orderings=8 + seed)
        gap = (first.value(elbo_k) - second.value(elbo_k)) + (seed - 4) / 4
        third = Choice(exact_nats=round(64 * first.value(elbo_k)) / 64 - seed / 2)
        yield [first, shifted(second, round(64 * gap) / 64), third]


def test_exact_choices_are_compared_as_they_are(monkeypatch):
    monkeypatch.setattr("tube_lightning.decisions.uniforms", None)  # nothing is drawn
    decision = decide([Choice(-3.0), Choice(-2.5), Choice(-9.0)], confidence=1.0)
    assert (decision.winner, decision.best, decision.support) == (1, 1, 1.0)
    assert decision.exact
    assert decision.nats == (-3.0, -2.5, -9.0)


@pytest.mark.parametrize("nats", [-2.0, -1e6, -INF])
def test_a_tie_is_undecided(nats):
    decision = decide([Choice(-INF), Choice(nats), Choice(nats)])
    assert (decision.winner, decision.support, decision.exact) == (None, 0.0, True)


def test_rounding_is_a_tie():
    assert decide([Choice(0.1 + 0.2), Choice(0.3)]).winner is None
    same = Choice(scores=torch.full((1, 12), -0.3, dtype=torch.float64))
    assert decide([same, Choice(-0.3)]).winner is None


@pytest.mark.parametrize("num_orderings", [8, 32])
@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0])
def test_identical_choices_are_never_decided(num_orderings, spread):
    for seed in range(5):
        choice = sampled(seed, num_orderings=num_orderings, spread=spread)
        assert decide([choice, choice, shifted(choice, -1000.0)], seed=seed).winner is None


def test_sampled_choices_far_apart_are_decided():
    near = sampled(0)
    decision = decide([shifted(near, -30.0), near, Choice(-40.0)])
    assert (decision.winner, decision.best, decision.support) == (1, 1, 1.0)
    assert not decision.exact
    assert decision.nats[1] == pytest.approx(elbo_k(near.scores).sum().item(), abs=1e-12)


@pytest.mark.parametrize("nats", [-1000.0, 0.25, 512.0])
def test_the_same_constant_for_all_changes_nothing(nats):
    for choices in questions():
        before, after = decide(choices), decide([shifted(c, nats) for c in choices])
        assert (before.winner, before.best, before.exact) == (after.winner, after.best, after.exact)
        assert after.support == pytest.approx(before.support, abs=0.002)  # rounding near a tie
        assert after.nats == pytest.approx([n + nats for n in before.nats], abs=1e-9)


def test_permuting_choices_permutes_the_answer():
    for choices in questions():
        before, after = decide(choices), decide([choices[2], choices[0], choices[1]])
        place = {0: 1, 1: 2, 2: 0, None: None}
        assert after.winner == place[before.winner]
        assert after.best == place[before.best]
        assert after.support == before.support


def test_permuting_orderings_changes_nothing():
    for choices in questions():
        moved = [
            c if c.scores is None else replace(c, scores=c.scores.flip(-1).roll(3, dims=-1))
            for c in choices
        ]
        assert decide(moved).support == decide(choices).support


def test_support_is_a_function_of_seed_and_item():
    choices = next(iter(questions()))
    again = [decide(choices, seed=seed, item=item) for seed in (0, 1) for item in (0, 2**40)]
    assert again == [
        decide(choices, seed=seed, item=item) for seed in (0, 1) for item in (0, 2**40)
    ]
    assert len({decision.support for decision in again}) > 1
    assert max(d.support for d in again) - min(d.support for d in again) < 0.1


def test_random_numbers_are_those_of_the_table(monkeypatch):
    """A place for each sampled block, the likeliest choice first."""
    asked = []

    def uniforms(stream, seed, item, place, count):
        asked.append((stream, seed, item, place, count))
        return torch.linspace(0.001, 0.999, count, dtype=torch.float64).numpy()

    monkeypatch.setattr("tube_lightning.decisions.uniforms", uniforms)
    few, many = sampled(0, blocks=1, num_orderings=8), sampled(1, blocks=2, num_orderings=9)
    decide([shifted(few, -50.0), Choice(-1.0), many], seed=3, item=7, num_resamples=100)
    assert asked == [
        (RESAMPLES, 3, 7, place, 100 * count) for place, count in [(0, 17), (1, 17), (2, 15)]
    ]


@pytest.mark.parametrize("num_orderings", [1, 2, LEAST_ORDERINGS - 1])
def test_too_few_orderings_are_never_decided(num_orderings):
    few = sampled(0, num_orderings=num_orderings)
    decision = decide([few, Choice(-1000.0)])
    assert (decision.winner, decision.best, decision.support) == (None, 0, 0.0)
    more = replace(few, scores=few.scores[:, :1].expand(-1, LEAST_ORDERINGS))
    assert decide([more, Choice(-1000.0)]).winner == 0


def test_a_choice_of_probability_zero_loses_whatever_its_scores():
    good, few = sampled(0), sampled(1, num_orderings=1, exact_nats=-INF)
    decision = decide([few, good])
    assert (decision.winner, decision.nats[0]) == (1, -INF)
    never = Choice(scores=torch.full((1, 16), -INF))
    assert decide([good, never]).winner == 0
    assert decide([never, never]).winner is None


def test_orderings_of_probability_zero_count_as_such():
    scores = torch.full((1, 32), -2.0, dtype=torch.float64)
    scores[:, ::2] = -INF
    half = Choice(scores=scores)
    assert decide([half, Choice(-20.0)]).winner == 0
    assert decide([half, Choice(-2.0 - math.log(2) + 0.01)]).winner is None
    assert decide([half, Choice(10.0)]).winner == 1
    scores = torch.full((1, 32), -INF)
    scores[:, 0] = -2.0  # a resample is without it in one of e cases
    assert decide([Choice(scores=scores), Choice(-1000.0)]).winner is None


def test_lengths_divide():
    long, short = Choice(-6.0, length=3.0), Choice(-4.0)
    assert decide([long, short]).winner == 0
    assert decide([long, short]).nats == (-2.0, -4.0)
    near = sampled(0)
    apart = [replace(near, length=4), replace(near, length=1)]
    assert decide(apart).winner == 0
    assert decide(apart).nats[0] == pytest.approx(near.value(elbo_k) / 4, abs=1e-12)


def test_no_sampled_block_is_exact():
    decision = decide([Choice(-1.0, torch.empty(0, 3)), Choice(-2.0)])
    assert (decision.winner, decision.exact) == (0, True)


def test_scores_may_be_float32():
    choice = sampled(0)
    assert decide([replace(choice, scores=choice.scores.float()), Choice(-8.0)]) == decide(
        [choice, Choice(-8.0)]
    )


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"exact_nats": math.nan}, r"exact_nats: expected nats below \+inf, got nan"),
        ({"exact_nats": INF}, "exact_nats: .* got inf"),
        ({"length": 0.0}, r"length: expected a finite number above 0, got 0\.0"),
        ({"length": INF}, "length: .* got inf"),
        ({"scores": torch.tensor([[1.0, math.nan]])}, r"scores: .* got nan at index \(0, 1\)"),
        ({"scores": torch.tensor([[INF, 1.0]])}, r"scores: .* got inf at index \(0, 0\)"),
        ({"scores": torch.empty(2, 0)}, r"scores: expected at least 1 ordering.* \(2, 0\)"),
    ],
)
def test_what_is_no_choice_is_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        Choice(**arguments)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"confidence": 0.5}, r"confidence: expected above 0\.5 and at most 1, got 0\.5"),
        ({"confidence": math.nan}, "confidence: .* got nan"),
        ({"num_resamples": 99}, "num_resamples: expected a whole number of at least 100, got 99"),
        ({"seed": -1}, r"seed: expected an integer from 0 to 2\*\*64 - 1, got -1"),
    ],
)
def test_bad_settings_are_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        decide([sampled(0), sampled(1)], **settings)


def test_one_choice_is_no_question():
    with pytest.raises(ValueError, match="choices: expected at least 2, got 1"):
        decide([Choice(-1.0)])
