"""Text of documents packed into sequences, on which two models are equally good: rates of zero."""

from typing import NamedTuple

import numpy as np
import torch

from tube_lightning.metrics.errors import TextSums, rate_errors

LENGTH = 128  # tokens of a sequence


class Noise(NamedTuple):
    """Nats of pieces: AR(1) within a document, and an effect of the document on each token."""

    law: str = "gauss"
    neighbours: float = 0.0
    document: float = 0.0  # share of the variance of a sequence


class Outcome(NamedTuple):
    estimates: np.ndarray
    margins: np.ndarray  # NaN where no interval is given

    @property
    def given(self):
        return np.isfinite(self.margins).mean()

    def named(self, effect=0.0):
        """How often a winner is named, of the times a verdict is given."""
        told = np.isfinite(self.margins)
        return (np.abs(self.estimates + effect)[told] > self.margins[told]).mean()

    def found(self, size):
        """How often an effect is found that is so many true standard errors large."""
        return self.named(effect=size * self.estimates.std())


def document_sizes(kind, num_documents, windows, rng):
    """Tokens of documents, that many windows long on average."""
    sizes = rng.uniform(0.75, 1.25, num_documents)
    if kind == "lognormal":
        sizes = rng.lognormal(0.0, 1.0, num_documents)
    if kind == "one holds 40%":
        largest = rng.integers(num_documents)
        sizes[largest] = (sizes.sum() - sizes[largest]) * 2 / 3
    if kind == "two hold 30% each":
        sizes[:2] = sizes[2:].sum() * 0.75
    tokens = sizes / sizes.sum() * num_documents * windows * LENGTH
    return np.maximum(np.round(tokens), 4).astype(int)


def _draws(law, shape, rng):
    if law == "t3":
        return rng.standard_normal(shape) / np.sqrt(rng.chisquare(3, shape))
    if law == "lognormal":  # two models of the same skewed nats: their difference is symmetric
        return np.exp(rng.standard_normal(shape)) - np.exp(rng.standard_normal(shape))
    if law == "skewed":
        return np.exp(rng.standard_normal(shape)) - np.exp(0.5)
    return rng.standard_normal(shape)


def _sums(nats, tokens, owners):
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    return TextSums(
        torch.from_numpy(np.ascontiguousarray(np.add.reduceat(nats, starts).T)),
        torch.from_numpy(np.add.reduceat(tokens, starts)),
    )


def texts(sizes, noise, repetitions, rng):
    """Draw texts; return their sums over sequences and over documents."""
    document_ends = np.cumsum(sizes)
    total = document_ends[-1]
    sequence_ends = np.append(np.arange(LENGTH, total, LENGTH), total)
    ends = np.union1d(document_ends, sequence_ends)
    starts = np.append(0, ends[:-1])
    tokens = ends - starts
    documents = np.searchsorted(document_ends, starts, side="right")
    nats = _draws(noise.law, (len(tokens), repetitions), rng)
    fresh = np.sqrt(1 - noise.neighbours**2)
    for piece in range(1, len(tokens)) if noise.neighbours else ():
        if documents[piece] == documents[piece - 1]:
            nats[piece] = noise.neighbours * nats[piece - 1] + fresh * nats[piece]
    nats *= np.sqrt((1 - noise.document) * tokens / LENGTH)[:, None]
    effects = rng.standard_normal((len(sizes), repetitions)) * np.sqrt(noise.document)
    nats += effects[documents] * (tokens / LENGTH)[:, None]
    sequences = np.searchsorted(sequence_ends, starts, side="right")
    return _sums(nats, tokens, sequences), _sums(nats, tokens, documents)


def simulate(seed, layouts, noise, *, known=True, repetitions=1000):
    """Estimates and margins over texts of each of the layouts, which are functions of a generator.

    ``known`` says whether the documents are.
    """
    estimates, margins = [], []
    for number, layout in enumerate(layouts):
        rng = np.random.default_rng((seed, number))
        sequences, documents = texts(layout(rng), noise, repetitions, rng)
        errors = rate_errors(sequences, documents if known else None)
        estimates.append((sequences.nats.sum(dim=1) / sequences.tokens.sum()).numpy())
        margins.append([error.margin for error in errors])
    return Outcome(np.concatenate(estimates), np.concatenate(margins))
