"""Small finished runs for the report's tests, made of oracles: none of their numbers is ours."""

import json
import math
import random
from collections import defaultdict

import numpy
import scipy.stats
import torch
from oracles import assignments, mean, orders, probabilities, random_table, scores

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.measure import RunParts, measure_regimes
from tube_lightning.report.verdict import Verdict
from tube_lightning.scores import BlockScores, RegimeScores, ScoreFiles

SIZE, BLOCKS, NUM = 3, 3, 8
WAYS = {"nfe_1": assignments(SIZE, 1), "nfe_2": assignments(SIZE, 2), "ao_arm": orders(SIZE)}
ESTIMATORS = {"cubo_beta": 2.0, "tvo_partitions": 7, "isvgb_pairs": 2}


class Run:
    """Values of every sequence and block, in plain lists: ``scores[regime][sequence][block]``.

    The last block of the last sequence is absent: it has values, and no token to count them for.
    Each sequence is a document, or each so many of them; 0 for documents that nobody knows.
    """

    def __init__(self, sequences=5, seed=0, arm_shift=0.4, bank=False, elbo_seeds=0, documents=1):
        rng = random.Random(seed)
        self.bank, self.elbo_seeds = bank, elbo_seeds
        self.ids = list(range(sequences))
        self.documents = [s // documents for s in self.ids] if documents else None
        self.tokens = [[SIZE - 1, SIZE, SIZE] for _ in self.ids]
        if sequences > 1:
            self.tokens[-1][-1] = 0
        self.bytes = [
            [3 * n + (s + b) % 4 * (n > 0) for b, n in enumerate(row)]
            for s, row in enumerate(self.tokens)
        ]
        tables = [
            [random_table(1000 * seed + 10 * s + b, SIZE) for b in range(BLOCKS)] for s in self.ids
        ]
        self.scores, self.exact, self.exact_elbo, self.pi = {}, {}, {}, {}
        for regime, ways in WAYS.items():
            shared = [rng.choice(ways) for _ in range(NUM)]

            def drawn(ways=ways, shared=shared):
                return shared if bank else [rng.choice(ways) for _ in range(NUM)]

            def each(value):
                return [[float(value(table)) for table in row] for row in tables]

            self.scores[regime] = [
                [list(map(float, scores(table, drawn()))) for table in row] for row in tables
            ]
            self.exact[regime] = each(lambda t, w=ways: mean(probabilities(scores(t, w))).ln())
            self.exact_elbo[regime] = each(lambda t, w=ways: mean(scores(t, w)))
            self.pi[regime] = each(lambda t, w=ways: scores(t, w[:1])[0])
        self.arm = [
            [value + arm_shift + rng.gauss(0, 0.2) for value in row] for row in self.exact["ao_arm"]
        ]
        self.continuous = [
            [[rng.gauss(value, 1) for _ in range(elbo_seeds)] for value in row]
            for row in self.exact_elbo["ao_arm"]
        ]

    def soften(self, factor=0.3):
        """Bring the orderings of every block closer together; their mean of p is then exact."""
        for regime, rows in self.scores.items():
            for row, exact in zip(rows, self.exact[regime], strict=True):
                for block, value in zip(row, exact, strict=True):
                    scaled = [factor * score for score in block]
                    shift = value - float(mean(probabilities(scaled)).ln())
                    block[:] = [score + shift for score in scaled]
        return self

    def record(self, num_batches):
        return {
            "versions": {"torch": "2.13"},
            "config": {"batch_size": 2},
            "data": {"source": "tiny_text", "tokenizer": "byte", "token_sha256": "ab12"},
            "model": {"checkpoint": "tiny", "block_size": SIZE},
            "protocol": {
                "num_orderings": NUM,
                "seed": 3,
                "bank": self.bank,
                "num_reseeds": 4 if self.bank else 0,
                "elbo_seeds": self.elbo_seeds,
            },
            "estimators": ESTIMATORS,
            "num_batches": num_batches,
        }

    def write(self, folder, batch_size=2, exact=True, arm=True, backwards=False, **changes):
        """Write the run as evaluate.py does; ``changes`` replace entries of run.json."""
        starts = list(range(0, len(self.ids), batch_size))
        for number in reversed(range(len(starts))) if backwards else range(len(starts)):
            rows = slice(starts[number], starts[number] + batch_size)
            ScoreFiles(folder / "scores").write(number, self._part(rows, exact, arm))
        record = {**self.record(len(starts)), **changes}
        (folder / "run.json").write_text(json.dumps(record))
        return folder

    def _part(self, rows, exact, arm):
        def tensor(values):
            return torch.tensor(values[rows], dtype=torch.float64)

        regimes = {
            name: RegimeScores(
                tensor(self.scores[name]),
                exact=tensor(self.exact[name]) if exact else None,
                exact_elbo=tensor(self.exact_elbo[name]) if exact else None,
                continuous_elbo=tensor(self.continuous)
                if self.elbo_seeds and name == "ao_arm"
                else None,
                left_to_right=tensor(self.pi[name]),
            )
            for name in WAYS
        }
        ids, tokens = torch.tensor(self.ids[rows]), torch.tensor(self.tokens[rows])
        arms = {"arm": tensor(self.arm)} if arm else {}
        return BlockScores(
            ids,
            tokens,
            regimes,
            arms,
            torch.tensor(self.bytes[rows]),
            documents=self._documents_of(rows),
            seconds=0.5,
        )

    def _documents_of(self, rows):
        """Number the document of every scored token; the given one is the first of a sequence."""
        if self.documents is None:
            return None
        return torch.tensor(
            [
                [[d if place >= SIZE - n else -1 for place in range(SIZE)] for n in counts]
                for d, counts in zip(self.documents[rows], self.tokens[rows], strict=True)
            ]
        )

    def document_sums(self, values):
        """Sum the nats and the tokens of each document."""
        sums, sizes = defaultdict(list), defaultdict(int)
        for document, row, counts in zip(self.documents, values, self.tokens, strict=True):
            sums[document] += [float(v) for v, n in zip(row, counts, strict=True) if n]
            sizes[document] += sum(counts)
        return {document: (math.fsum(sums[document]), sizes[document]) for document in sums}

    def corpus(self, values):
        """Return the nats per token of block values, and their standard error over documents."""
        pieces = self.document_sums(values).values()
        total = sum(size for _, size in pieces)
        rate = math.fsum(nats for nats, _ in pieces) / total
        if len(pieces) == 1:
            return rate, None
        squares = [(nats - rate * size) ** 2 / (1 - size / total) for nats, size in pieces]
        return rate, math.sqrt(math.fsum(squares)) / total

    @property
    def degrees(self):
        """Bell and McCaffrey's degrees of freedom, by the trace of a matrix as they define them."""
        sizes = [size for _, size in self.document_sums(self.arm).values()]
        shares = numpy.array(sizes) / sum(sizes)
        deviations = numpy.eye(len(shares)) - numpy.outer(shares, numpy.ones(len(shares)))
        scaled = deviations / numpy.sqrt(1 - shares)[:, None]
        covariance = scaled @ numpy.diag(shares) @ scaled.T
        return numpy.trace(covariance) ** 2 / (covariance**2).sum()

    @property
    def t95(self):
        """Student's quantile for those."""
        return float(scipy.stats.t.ppf(0.975, self.degrees))

    def blockwise(self, regime, function):
        """Apply a function of scores to every block."""
        return [[function(block) for block in row] for row in self.scores[regime]]


def measured(run, folder, **options):
    """Write a run and measure its regimes."""
    directory = run.write(folder, **options)
    parts = RunParts(directory, -(-len(run.ids) // 2))
    return measure_regimes(parts, EstimatorSettings(**ESTIMATORS))[0]


def verdict_of(run, folder, **options):
    """Write a run and judge it."""
    directory = run.write(folder, **options)
    parts = RunParts(directory, -(-len(run.ids) // 2))
    return Verdict.of(*measure_regimes(parts, EstimatorSettings(**ESTIMATORS)))


def strict(text):
    """Parse JSON that has no NaN and no infinity."""

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)
