"""Slow, obvious oracles: Python loops over every order, in decimals of 60 digits.

They share no code with the package. A table is a list of rows, ``table[S][d]``; a way to reveal a
block is a list of steps, one a position.
"""

import decimal
import itertools
import math
import random
from decimal import Decimal

decimal.getcontext().prec = 60


def mean(values):
    return sum(values) / len(values)


def probabilities(scores):
    return [Decimal(score).exp() for score in scores]


# Estimators of log p from scores, each by its formula


def elbo(scores):
    return mean([Decimal(score) for score in scores])


def elbo_k(scores):
    return mean(probabilities(scores)).ln()


def cubo(scores, beta):
    return mean([(Decimal(beta) * Decimal(score)).exp() for score in scores]).ln() / Decimal(beta)


def tangent(p_hat, psi):
    return psi.ln() + p_hat / psi - 1


def tube(scores, log_psi):
    return tangent(mean(probabilities(scores)), Decimal(log_psi).exp())


def tube_split(scores):
    p = probabilities(scores)
    half = len(p) // 2
    return tangent(mean(p[half:]), mean(p[:half]))


def tube_kfold(scores, folds):
    p = probabilities(scores)
    size = len(p) // folds
    values = []
    for first in range(0, len(p), size):
        fold = p[first : first + size]
        others = p[:first] + p[first + size :]
        values.append(tangent(mean(fold), mean(others)))
    return mean(values)


def tube_loo(scores):
    p = probabilities(scores)
    return mean([tangent(p[k], mean(p[:k] + p[k + 1 :])) for k in range(len(p))])


def tvo_upper(scores, partitions):
    scores = [Decimal(score) for score in scores if score > -math.inf]
    values = []
    for step in range(1, partitions + 1):
        weights = [(score * step / partitions).exp() for score in scores]
        values.append(sum(w * s for w, s in zip(weights, scores, strict=True)) / sum(weights))
    return mean(values)


def isvgb(scores, pairs):
    p = probabilities(scores)
    size = len(p) // (2 * pairs)
    groups = [mean(p[first : first + size]) for first in range(0, len(p), size)]
    xs, ys = groups[:pairs], groups[pairs:]
    ratios = [y / x for x, y in zip(xs, ys, strict=True)]
    return mean([x.ln() for x in xs]) + mean(ratios).ln()


# All the ways to reveal a block, equally likely


def orders(size):
    """List the any-order ARM's: one position a step."""
    return [
        [order.index(position) for position in range(size)]
        for order in itertools.permutations(range(size))
    ]


def assignments(size, num_steps):
    """List the T-step MDM's: every position draws its step."""
    return [list(steps) for steps in itertools.product(range(num_steps), repeat=size)]


def chunkings(size, sizes):
    """List those of chunks: every order, cut into pieces of the given sizes."""
    chunk_of_rank = [chunk for chunk, count in enumerate(sizes) for _ in range(count)]
    return [[chunk_of_rank[rank] for rank in ranks] for ranks in orders(size)]


def set_before(steps, position):
    """Return the set revealed before the step of ``position``, as a set of positions."""
    return {other for other, step in enumerate(steps) if step < steps[position]}


def score(table, steps):
    """Return log p(x | steps): every position given what was revealed before its step."""
    total = Decimal(0)
    for position in range(len(steps)):
        code = sum(2**other for other in set_before(steps, position))
        total += Decimal(table[code][position])
    return total


def scores(table, ways):
    return [score(table, steps) for steps in ways]


# Tables


def random_table(seed, size, mean_nats=1.5):
    """Return conditionals that agree with no joint; NaN where the position is in the set."""
    rng = random.Random(seed)
    return [
        [
            math.nan if revealed >> position & 1 else -rng.expovariate(1 / mean_nats)
            for position in range(size)
        ]
        for revealed in range(2**size)
    ]


def order_free_table(seed, size):
    """Return conditionals that ignore what is revealed, and their sum."""
    rng = random.Random(seed)
    row = [-rng.expovariate(1.0) for _ in range(size)]
    return [list(row) for _ in range(2**size)], math.fsum(row)


def consistent_table(seed, size):
    """Return the conditionals of one joint, and its log-probability: every order gives the same."""
    rng = random.Random(seed)
    log_joint = [0.0] + [-rng.expovariate(1.0) * s.bit_count() for s in range(1, 2**size)]
    table = [
        [log_joint[revealed | 1 << position] - log_joint[revealed] for position in range(size)]
        for revealed in range(2**size)
    ]
    return table, log_joint[-1]
