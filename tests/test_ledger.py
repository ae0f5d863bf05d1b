"""Sums by sequence and by document, against plain loops; banks that know their luck."""

import math
import random
from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.measure import Bank, measure_regimes
from tube_lightning.measure.bank_quantities import widen
from tube_lightning.measure.ledger import Ledger
from tube_lightning.metrics import Measured, Quantity, RateError, TextSums, rate_errors
from tube_lightning.report.verdict import Verdict
from tube_lightning.scores import BlockScores, RegimeScores, RegimeView

SIZE = 3


def packed_text(num_sequences=40, blocks=4, seed=0, known=True):
    """Documents of 1 to 30 tokens, one after the other; token 0 of a sequence is given."""
    rng = random.Random(seed)
    stream, document = [], 0
    while len(stream) < num_sequences * blocks * SIZE:
        stream += [document] * rng.randint(1, 30)
        document += 1
    documents = torch.tensor(stream[: num_sequences * blocks * SIZE]).view(-1, blocks, SIZE)
    documents[:, 0, 0] = -1
    num_tokens = (documents >= 0).sum(dim=-1)
    scores = torch.randn(
        num_sequences, blocks, 2, generator=torch.Generator().manual_seed(seed)
    ).double()
    return BlockScores(
        torch.arange(num_sequences),
        num_tokens,
        {"ao_arm": RegimeScores(scores)},
        documents=documents if known else None,
    )


def read(view):
    return view.regime.scores[..., 0]


def read_other(view):
    return view.regime.scores[..., 1]


QUANTITIES = [Quantity("one", read), Quantity("other", read_other)]


def finished(part, order):
    ledger = Ledger(QUANTITIES)
    for rows in order:
        some = BlockScores(
            part.sequences[rows],
            part.num_tokens[rows],
            {"ao_arm": RegimeScores(part.regimes["ao_arm"].scores[rows])},
            documents=None if part.documents is None else part.documents[rows],
        )
        ledger.update(some.views()["ao_arm"], some)
    return ledger.finish()


@pytest.mark.parametrize("known", [True, False])
def test_sums_are_those_of_plain_loops(known):
    part = packed_text(known=known)
    nats, tokens = defaultdict(float), defaultdict(int)
    by_sequence = []
    for sequence in range(40):
        total = 0.0
        for block in range(4):
            value = part.regimes["ao_arm"].scores[sequence, block, 0].item()
            total += value
            number = int(part.num_tokens[sequence, block])
            for document in part.documents[sequence, block].tolist() if known else ():
                if document >= 0:
                    nats[document] += value / number
                    tokens[document] += 1
        by_sequence.append(total)
    nats_by_sequence = torch.tensor([by_sequence], dtype=torch.float64)
    sequences = TextSums(nats_by_sequence, part.num_tokens.sum(dim=1))
    documents = None
    if known:
        order = sorted(nats)
        documents = TextSums(
            torch.tensor([[nats[d] for d in order]], dtype=torch.float64),
            torch.tensor([tokens[d] for d in order]),
        )
    [want] = rate_errors(sequences, documents)
    got = finished(part, [range(40)])["one"]
    count = int(part.num_tokens.sum())
    assert got.nats_per_token == pytest.approx(math.fsum(by_sequence) / count, rel=1e-14)
    assert got.error.method == want.method == ("documents" if known else "sequences")
    assert got.error[:2] == pytest.approx(want[:2], rel=1e-9)
    assert got.num_tokens == count


@pytest.mark.parametrize("known", [True, False])
def test_neither_batches_nor_their_order_matter(known):
    part, rng = packed_text(known=known), random.Random(1)
    whole = finished(part, [range(40)])
    for size in (1, 7, 16):
        rows = list(range(40))
        rng.shuffle(rows)
        got = finished(part, [rows[i : i + size] for i in range(0, 40, size)])
        for name, value in whole.items():
            assert got[name].nats_per_token == value.nats_per_token  # rounded once
            assert got[name].error[:2] == pytest.approx(value.error[:2], rel=1e-9)


def test_a_nan_is_named():
    part = packed_text()
    part.regimes["ao_arm"].scores[7, 2, 1] = math.nan
    with pytest.raises(
        ValueError, match="other: expected a number, got nan in block 2 of sequence"
    ):
        finished(part, [range(40)])


# ---- banks


def measured(rate, error, degrees):
    return Measured(rate, RateError(error, degrees, "documents", 10.0), 100)


def test_luck_adds_to_the_error():
    value = measured(-2.0, 0.3, 20.0)
    assert widen(value, [-2.0, -2.0, -2.0]) == value
    got = widen(value, [-2.2, -2.0, -1.8]).error
    assert got.standard_error == pytest.approx(math.sqrt(0.09 + 0.04 / 3))
    total = 0.09 + 0.04 / 3
    assert got.degrees == pytest.approx(total**2 / (0.09**2 / 20 + (0.04 / 3) ** 2 / 2))
    assert got.effective_sequences == pytest.approx(10 * 0.09 / total)
    assert math.isnan(widen(value, [math.inf, 0.0]).standard_error)


def text_of_banks(num_banks, seed, num_sequences=40, orderings=8):
    """A model whose orderings are good or bad for all blocks alike; the ARM is the model itself."""
    generator = torch.Generator().manual_seed(seed)
    luck = torch.randn(num_banks * orderings, generator=generator).double()
    own = 0.1 * torch.randn(num_sequences, 4, num_banks * orderings, generator=generator).double()
    spread = 0.5
    scores = -6 + spread * luck + own
    arm = torch.full((num_sequences, 4), -6 + (spread**2 + 0.01) / 2).double()
    documents = torch.arange(num_sequences)[:, None, None].expand(-1, 4, SIZE)
    return BlockScores(
        torch.arange(num_sequences),
        torch.full((num_sequences, 4), SIZE),
        {"ao_arm": RegimeScores(scores)},
        {"arm": arm},
        documents=documents,
    )


@pytest.mark.parametrize("num_banks", [1, 8])
def test_a_bank_does_not_name_a_winner_by_luck(num_banks):
    """With an ARM that is the model itself a winner was named in 26% of 200 banks."""
    named = lucky = 0
    for seed in range(200):
        part = text_of_banks(num_banks, seed)
        bank = Bank(seed=1, num_reseeds=1, num_banks=num_banks)
        verdict = Verdict.of(*measure_regimes([part], EstimatorSettings(), bank))
        named += verdict.winner is not None
        lucky += min(verdict.p_values.values()) < 0.025
        if num_banks == 1:
            assert "cannot tell how lucky it was" in verdict.sentence()
    assert named <= 0.06 * 200
    assert num_banks == 8 or lucky > 0.2 * 200  # what the text alone would have said


def test_a_better_model_wins_with_several_banks():
    part = text_of_banks(8, seed=0)
    worse = {"arm": part.arms["arm"] - 3}
    part = BlockScores(
        part.sequences, part.num_tokens, part.regimes, worse, documents=part.documents
    )
    bank = Bank(seed=1, num_reseeds=2, num_banks=8)
    verdict = Verdict.of(*measure_regimes([part], EstimatorSettings(), bank))
    assert verdict.winner == "model"
    assert "ELBO_K of 8 banks" in verdict.sentence()
    assert "over 40 documents and 8 banks" in verdict.sentence()


def test_tube_of_banks_does_not_make_the_arm_win():
    """It bounds the mean of p over the orderings of a bank, not p itself."""
    part = text_of_banks(8, seed=0)
    part = replace(part, arms={"arm": part.arms["arm"] + 3})
    bank = Bank(seed=1, num_reseeds=2, num_banks=8)
    verdict = Verdict.of(*measure_regimes([part], EstimatorSettings(), bank))
    assert verdict.p_values["arm"] < 0.025
    assert verdict.winner is None
    assert "TUBE of banks bounds the banks' mean, not the model" in verdict.sentence()


def test_means_over_banks_are_those_of_single_banks():
    part = text_of_banks(3, seed=4, num_sequences=30)
    regimes, _ = measure_regimes([part], EstimatorSettings(), Bank(1, 2, num_banks=3))
    values = regimes["ao_arm"].values
    scores = part.regimes["ao_arm"].scores
    for number in range(3):
        own = scores[..., 8 * number : 8 * number + 8]
        want = (torch.logsumexp(own, dim=-1) - math.log(8)).sum().item() / (30 * 4 * SIZE)
        assert values[f"elbo_k#{number}"].nats_per_token == pytest.approx(want, rel=1e-12)
    for name in ("elbo_k", "tube_split", "cubo"):
        of_banks = [values[f"{name}#{number}"].nats_per_token for number in range(3)]
        assert values[name].nats_per_token == pytest.approx(sum(of_banks) / 3, rel=1e-12)
    alone, _ = measure_regimes(
        [
            BlockScores(
                part.sequences,
                part.num_tokens,
                {"ao_arm": RegimeScores(scores[..., :8])},
                part.arms,
                documents=part.documents,
            )
        ],
        EstimatorSettings(),
        Bank(1, 2),
    )
    single = alone["ao_arm"].values["tube_split"].nats_per_token
    assert values["tube_split#0"].nats_per_token == pytest.approx(single, rel=1e-12)


def test_a_view_without_banks_is_refused():
    part = text_of_banks(2, seed=0)
    view = Bank(1, 1, num_banks=2).views(part, EstimatorSettings())["ao_arm"]
    [quantity] = [
        q
        for q in measure_regimes([part], EstimatorSettings(), Bank(1, 1, 2))[0][
            "ao_arm"
        ].quantities.reported
        if q.name == "elbo_k"
    ]
    assert quantity.values(view).shape == (40, 4)
    with pytest.raises(TypeError, match="expected a regime of banks, got fresh orderings"):
        quantity.values(RegimeView(view.regime, view.arms))
