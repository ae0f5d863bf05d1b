"""The difference of two rates over the same pieces of text, each with a denominator of its own."""

import torch

from tube_lightning.metrics.errors import TextSums


def difference_of_rates(ours: TextSums, theirs: TextSums) -> TextSums:
    """Return sums whose rate is R1 - R2, and whose errors are those of that difference.

    R1 = sum_g a_g / A,   R2 = sum_g b_g / B,   A = sum_g A_g,   B = sum_g B_g
    i_g = (a_g - R1 A_g) / A - (b_g - R2 B_g) / B,   w_g = (A_g / A + B_g / B) / 2

    Piece g gets the nats N (i_g + (R1 - R2) w_g) and the tokens N w_g, N = (A + B) / 2.

    Guarantee: the paired differences a_g - b_g themselves where the denominators are the same;
    else the influence of each piece to first order, as the jackknife has it.
    """
    shares, influences, rates, sizes = [], [], [], []
    for sums in (ours, theirs):
        tokens = sums.tokens.double()
        size = tokens.sum()
        rate = sums.nats.sum(dim=1, keepdim=True) / size
        shares.append(tokens / size)
        influences.append(sums.nats / size - rate * shares[-1])
        rates.append(rate)
        sizes.append(size)
    share, size = torch.stack(shares).mean(dim=0), torch.stack(sizes).mean()
    difference = (rates[0] - rates[1]) * share
    return TextSums(size * (influences[0] - influences[1] + difference), size * share)
