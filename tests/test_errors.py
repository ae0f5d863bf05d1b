"""Errors of rates against plain loops, laws they obey, and quantiles of Student's t."""

import math

import pytest
import torch

from tube_lightning.metrics.errors import (
    FEWEST_SEQUENCES,
    NUM_SLOW_WAVES,
    RateError,
    TextSums,
    cluster_errors,
    num_fast_waves,
    rate_errors,
    wave_errors,
)
from tube_lightning.metrics.intervals import one_sided_p, t95


def sums(nats, tokens):
    nats = torch.as_tensor(nats, dtype=torch.float64)
    return TextSums(nats if nats.ndim == 2 else nats[None], torch.as_tensor(tokens))


def drawn(pieces, seed=0, tokens=(20, 200)):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(*tokens, (pieces,), generator=generator)
    noise = torch.randn(pieces, dtype=torch.float64, generator=generator)
    return sums(-1.2 * counts + noise * counts.sqrt(), counts)


def left_out(pieces, index):
    """The rate of all pieces but one."""
    rows = list(zip(pieces.nats[0].tolist(), pieces.tokens.tolist(), strict=True))
    kept = rows[:index] + rows[index + 1 :]
    return math.fsum(n for n, _ in kept) / math.fsum(t for _, t in kept)


@pytest.mark.parametrize("pieces", [2, 3, 7, 40])
def test_pieces_of_one_size_have_the_error_of_leaving_one_out(pieces):
    text = drawn(pieces, tokens=(64, 65))
    rates = [left_out(text, i) for i in range(pieces)]
    centre = math.fsum(rates) / pieces
    variance = (pieces - 1) / pieces * math.fsum((rate - centre) ** 2 for rate in rates)
    errors, degrees = cluster_errors(text)
    assert errors.item() == pytest.approx(math.sqrt(variance), rel=1e-9)
    assert degrees == pytest.approx(pieces - 1, rel=1e-12)


@pytest.mark.parametrize("pieces", [3, 7, 40])
def test_pieces_of_any_sizes_have_the_error_of_leaving_one_out_less_its_inflation(pieces):
    """Leaving out g moves the rate by r_g / (N - n_g); (1 - w_g) of its square is kept."""
    text = drawn(pieces)
    total = text.tokens.sum().item()
    rate = text.nats.sum().item() / total
    variance = math.fsum(
        (rate - left_out(text, i)) ** 2 * (1 - tokens / total)
        for i, tokens in enumerate(text.tokens.tolist())
    )
    assert cluster_errors(text)[0].item() == pytest.approx(math.sqrt(variance), rel=1e-9)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 3, 2, 1, 1), (40, *[2] * 30)])
def test_variance_is_unbiased_and_has_the_degrees_of_its_quadratic_form(sizes):
    """For variances in proportion to tokens, by the matrix of the form: no sampling."""
    shares = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
    number = len(sizes)
    identity = torch.eye(number, dtype=torch.float64)
    centring = identity - torch.outer(shares, torch.ones(number, dtype=torch.float64))
    scaled = centring / (1 - shares).sqrt()[:, None]
    covariance = scaled @ shares.diag() @ scaled.T  # of r_g / sqrt(1 - w_g)
    units = sums(identity * sum(sizes), torch.tensor(sizes))  # quantity g: nats of piece g alone
    errors, degrees = cluster_errors(units)
    expected = (errors.square() * shares).sum().item()  # sum of the form's diagonal by variances
    assert expected == pytest.approx(1.0, rel=1e-12)
    assert covariance.trace().item() == pytest.approx(1.0, rel=1e-12)
    assert degrees == pytest.approx(1 / covariance.square().sum().item(), rel=1e-12)


@pytest.mark.parametrize("waves", [1, 3, 8])
def test_errors_by_waves_against_loops(waves):
    text = drawn(50)
    nats, tokens = text.nats[0].tolist(), text.tokens.tolist()
    total, rate = sum(tokens), math.fsum(nats) / sum(tokens)
    variance = 0.0
    for wave in range(1, waves + 1):
        coefficient, before = 0.0, 0
        for value, count in zip(nats, tokens, strict=True):
            middle = (before + count / 2) / total
            coefficient += math.cos(math.pi * wave * middle) * (value - rate * count)
            before += count
        variance += 2 * coefficient**2 / total**2 / waves
    errors, degrees = wave_errors(text, waves)
    assert errors.item() == pytest.approx(math.sqrt(variance), rel=1e-9)
    assert degrees == waves


def test_waves_are_exact_for_independent_sequences_of_one_length():
    """Each wave has the variance of the mean, by the trace of its form: no sampling."""
    number, waves = 30, 7
    units = sums(torch.eye(number, dtype=torch.float64) * number, torch.ones(number).long())
    for wave in range(1, waves + 1):
        before = (wave_errors(units, wave - 1)[0].square() * (wave - 1)) if wave > 1 else 0.0
        alone = wave_errors(units, wave)[0].square() * wave - before
        assert alone.sum().item() == pytest.approx(number, rel=1e-9)


def test_the_order_of_documents_is_nothing_to_their_error():
    documents = drawn(12)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    shuffled = TextSums(documents.nats[:, order], documents.tokens[order])
    for found, expected in zip(cluster_errors(shuffled), cluster_errors(documents), strict=True):
        assert found == pytest.approx(expected, rel=1e-12)


def test_windows_repeated_within_their_document_are_no_new_text():
    windows = drawn(24, tokens=(64, 65))
    (once,) = rate_errors(windows, windows)
    repeated = sums(windows.nats.repeat_interleave(8, dim=1), windows.tokens.repeat_interleave(8))
    documents = TextSums(windows.nats * 8, windows.tokens * 8)
    (again,) = rate_errors(repeated, documents)
    assert again.method == once.method == "documents"
    assert again[:2] == pytest.approx(once[:2], rel=1e-12)
    assert again.effective_sequences == pytest.approx(24, rel=0.05)
    naive = cluster_errors(repeated)[0].item()
    assert naive < 0.4 * again.standard_error  # what the sequences alone would say


def test_without_documents_repeated_windows_do_not_pass_for_new_text_either():
    windows = drawn(48, tokens=(64, 65))
    repeated = sums(windows.nats.repeat_interleave(8, dim=1), windows.tokens.repeat_interleave(8))
    slow, waves = wave_errors(windows, NUM_SLOW_WAVES)
    assert wave_errors(repeated, NUM_SLOW_WAVES)[0].item() == pytest.approx(slow.item(), rel=0.05)
    assert rate_errors(repeated)[0].margin > 0.95 * t95(waves) * slow.item()


def test_quantities_do_not_mix_and_scale():
    one, other = drawn(40, seed=1), drawn(40, seed=2)
    both = TextSums(torch.cat([one.nats, 3 * one.nats, one.nats + 5 * one.tokens]), one.tokens)
    first, scaled, shifted = rate_errors(both)
    assert rate_errors(one) == [first]
    assert scaled.standard_error == pytest.approx(3 * first.standard_error, rel=1e-9)
    assert shifted.standard_error == pytest.approx(first.standard_error, rel=1e-9)
    assert scaled.effective_sequences == pytest.approx(first.effective_sequences, rel=1e-9)
    assert rate_errors(other) != [first]


def folded(sequences, sizes):
    """Sums of documents that are so many whole sequences long."""
    nats = [part.sum(dim=1) for part in sequences.nats.split(sizes, dim=1)]
    return TextSums(
        torch.stack(nats, dim=1), torch.stack([p.sum() for p in sequences.tokens.split(sizes)])
    )


def test_the_larger_margin_of_documents_and_better_informed_sequences():
    methods = set()
    for seed in range(20):
        sequences = drawn(400, seed)
        documents = folded(sequences, [160, *[24] * 10])
        (error,) = rate_errors(sequences, documents)
        by_documents, degrees = cluster_errors(documents)
        by_waves, waves = wave_errors(sequences, num_fast_waves(400))
        margins = {
            "documents": t95(degrees) * by_documents.item(),
            "sequences": t95(waves) * by_waves.item(),
        }
        assert error.margin == pytest.approx(max(margins.values()), rel=1e-12)
        assert margins[error.method] == max(margins.values())
        methods.add(error.method)
    assert methods == {"documents", "sequences"}


def test_many_documents_are_asked_alone():
    sequences = drawn(400)
    (error,) = rate_errors(sequences, folded(sequences, [8] * 50))
    assert error.method == "documents"
    assert error.degrees > 40


NOTHING = RateError(math.nan, math.nan, "none", math.nan)


@pytest.mark.parametrize(
    ("sequences", "documents"),
    [
        (drawn(1), None),
        (drawn(1), drawn(1)),
        (drawn(FEWEST_SEQUENCES - 1), None),
        (drawn(100), folded(drawn(100), [50, 50])),
        (drawn(100), folded(drawn(100), [80, 10, 10])),
        (sums([-1.0], [100]), sums([-0.25] * 4, [25] * 4)),
        (sums([-math.inf] + [1.0] * 99, [5] * 100), None),
        (sums([math.inf] + [1.0] * 4, [5] * 5), sums([math.inf] + [1.0] * 4, [5] * 5)),
    ],
)
def test_no_error_from_too_little_or_infinite(sequences, documents):
    (error,) = rate_errors(sequences, documents)
    assert str(error) == str(NOTHING)
    assert math.isnan(error.margin)
    assert math.isnan(error.one_sided_p(0.3))


def test_an_infinite_quantity_leaves_the_others_alone():
    text = drawn(40)
    nats = torch.cat([text.nats, text.nats])
    nats[1, 7] = math.inf
    assert rate_errors(TextSums(nats, text.tokens))[0] == rate_errors(text)[0]


def test_just_enough():
    assert rate_errors(drawn(FEWEST_SEQUENCES))[0].method == "sequences"
    three = drawn(3, tokens=(64, 65))
    (error,) = rate_errors(three, three)
    assert (error.method, error.degrees) == ("documents", pytest.approx(2))


def test_pieces_without_tokens_do_not_count():
    text, nothing = drawn(30), sums([0.0] * 5, [0] * 5)
    padded = TextSums(
        torch.cat([text.nats, nothing.nats], dim=1), torch.cat([text.tokens, nothing.tokens])
    )
    assert rate_errors(padded, padded) == rate_errors(text, text)


def test_equal_rates_have_no_error():
    tokens = torch.full((30,), 64)
    (error,) = rate_errors(sums(-2.0 * tokens, tokens))
    assert error.standard_error == pytest.approx(0, abs=1e-15)
    assert error.effective_sequences <= 30


@pytest.mark.parametrize(
    ("sequences", "documents", "said"),
    [
        (drawn(30), drawn(30, seed=1), "documents: expected the"),
        (sums([1.0, 2.0], [3]), None, "tokens: expected one number for each of 2 pieces"),
    ],
)
def test_sums_of_other_text_are_refused(sequences, documents, said):
    with pytest.raises(ValueError, match=said):
        rate_errors(sequences, documents)


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.7062), (2, 4.30265), (5, 2.57058), (11, 2.20099), (30, 2.04227), (120, 1.97993)],
)
def test_quantiles_of_the_tables(degrees, quantile):
    assert t95(degrees) == pytest.approx(quantile, abs=5.1e-6 if degrees > 1 else 5.1e-5)
    assert one_sided_p(t95(degrees), 1.0, degrees) == pytest.approx(0.025, rel=1e-9)
    assert one_sided_p(-t95(degrees), 1.0, degrees) == pytest.approx(0.975, rel=1e-9)


def test_p_values_at_the_edges():
    assert [one_sided_p(e, 0.0, 5) for e in (-1.0, 0.0, 1.0)] == [1.0, 0.5, 0.0]
    assert one_sided_p(0.0, 1.0, 2.5) == pytest.approx(0.5)
    assert math.isnan(one_sided_p(1.0, math.nan, 5))
    assert math.isnan(t95(math.nan))
    assert t95(2) > t95(2.5) > t95(3)


def test_waves_in_chunks_are_the_waves_all_at_once():
    """One cosine after the other, in plain loops: more of them than go together."""
    generator = torch.Generator().manual_seed(0)
    nats = torch.randn(2, 300, generator=generator).double()
    tokens = torch.randint(50, 128, (300,), generator=generator)
    errors, degrees = wave_errors(TextSums(nats, tokens), 150)
    total = int(tokens.sum())
    for row, error in zip(nats.tolist(), errors.tolist(), strict=True):
        rate, squares = math.fsum(row) / total, []
        for wave in range(1, 151):
            before, projected = 0, []
            for value, size in zip(row, tokens.tolist(), strict=True):
                middle = (before + size / 2) / total
                projected.append(math.cos(math.pi * wave * middle) * (value - rate * size))
                before += size
            squares.append(2 * (math.fsum(projected) / total) ** 2)
        assert error == pytest.approx(math.sqrt(math.fsum(squares) / 150), rel=1e-9)
    assert degrees == 150
