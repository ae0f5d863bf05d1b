"""Questions of known answer for ``benchmarks.decisions``: which of some texts is likelier.

A question of a demo model: a prefix of the held-out text and four continuations of two blocks: the
true one, the same with one token replaced, with two neighbours exchanged, and one from elsewhere.
``gap`` moves the choices so that their exact log-likelihoods are independent normals of that
standard deviation, which makes every question hard; the scores keep their shape.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from tube_lightning.bounds import elbo_k, tube_loo
from tube_lightning.checkpoints import load_block_model
from tube_lightning.data import demo_sequences
from tube_lightning.decisions import Choice
from tube_lightning.lattice import exact_log_likelihood, score_orderings
from tube_lightning.orderings import block_roles, reveal_times
from tube_lightning.scoring import conditional_table

NUM_CHOICES, NUM_BLOCKS, PREFIX = 4, 2, 32

Tables = Float64[Tensor, "questions choices blocks sets size"]


@dataclass(frozen=True, eq=False)
class Question:
    """Choices from sampled orderings, and what their values are exactly."""

    item: int
    choices: list[Choice]
    truth: Float64[Tensor, " choices"]

    @property
    def lower(self) -> Float64[Tensor, " choices"]:
        """ELBO_K of each choice."""
        return torch.tensor([choice.value(elbo_k) for choice in self.choices], dtype=torch.float64)

    @property
    def upper(self) -> Float64[Tensor, " choices"]:
        """TUBE of each choice, from the same orderings."""
        values = [c.value(tube_loo if len(c.sampled) else elbo_k) for c in self.choices]
        return torch.tensor(values, dtype=torch.float64)


def random_tables(seed: int, num_questions: int, size: int, mean_nats: float = 1.5) -> Tables:
    """Draw conditionals that agree with no joint, each of exponential surprise."""
    generator = torch.Generator().manual_seed(seed)
    shape = (num_questions, NUM_CHOICES, NUM_BLOCKS, 2**size, size)
    surprise = torch.empty(shape, dtype=torch.float64)
    return surprise.exponential_(1 / mean_nats, generator=generator).neg()


def model_tables(name: str, num_questions: int, seed: int = 0) -> Tables:
    """Score questions made of the held-out text by an embedded model, all revealed sets."""
    model = load_block_model(f"demo:{name}")
    tokens = _continuations(seed, num_questions, NUM_BLOCKS * model.block_size)
    roles = block_roles(tokens.shape[-1], model.block_size, num_given=PREFIX)
    with torch.inference_mode():
        table = conditional_table(model, tokens.flatten(0, 1), roles=roles)
    tables: Tables = table[:, -NUM_BLOCKS:].unflatten(0, (num_questions, NUM_CHOICES))
    return tables


def _continuations(
    seed: int, num_questions: int, length: int
) -> Int64[Tensor, "questions choices length"]:
    """Cut prefixes out of the held-out text, with four different continuations each."""
    stream = demo_sequences("heldout").tokens.flatten()
    generator = torch.Generator().manual_seed(seed)

    def below(end: int) -> int:
        return int(torch.randint(end, (1,), generator=generator))

    found: list[Tensor] = []
    while len(found) < num_questions:
        texts = stream.unfold(0, PREFIX + length, 1)
        rows = texts[below(len(texts))].repeat(NUM_CHOICES, 1)
        rows[1, PREFIX + below(length)] = stream[below(len(stream))]
        first = PREFIX + below(length - 1)
        rows[2, first : first + 2] = rows[2, first : first + 2].flip(0)
        rows[3, PREFIX:] = texts[below(len(texts)), PREFIX:]
        if len(rows.unique(dim=0)) == NUM_CHOICES:
            found.append(rows)
    return torch.stack(found)


def make_questions(
    tables: Tables, num_orderings: int, *, gap: float | None = None, seed: int = 0
) -> Iterator[Question]:
    """Sample orderings; with a gap, also cut the choices to one block or more and move them."""
    num_questions, num_choices, num_blocks, _, size = tables.shape
    exact = exact_log_likelihood(tables)
    generator = torch.Generator().manual_seed(seed)
    for item in range(num_questions):
        ids = range(item * num_choices, (item + 1) * num_choices)
        times = reveal_times(
            seed, ids, range(num_blocks), num_orderings=num_orderings, size=size
        )  # [choices, blocks, orderings, size]
        scores = score_orderings(tables[item], times)
        numbers = torch.full((num_choices,), num_blocks)
        truth = exact[item].sum(dim=-1)
        moves = torch.zeros_like(truth)
        if gap is not None:
            numbers = torch.randint(1, num_blocks + 1, (num_choices,), generator=generator)
            here = torch.stack([e[:n].sum() for e, n in zip(exact[item], numbers, strict=True)])
            truth = gap * torch.randn(num_choices, generator=generator, dtype=torch.float64)
            moves = truth - here
        choices = [
            Choice(move, s[:n]) for move, s, n in zip(moves.tolist(), scores, numbers, strict=True)
        ]
        yield Question(item, choices, truth)


def gaussian_questions(
    spread: float, num_questions: int, num_orderings: int, *, gap: float, seed: int = 0
) -> Iterator[Question]:
    """Put a block of normal scores, heavy-tailed in exp(s), beside an exact choice.

    E[exp s] = 1 for s normal with mean -spread**2 / 2, so that log p is known.
    """
    generator = torch.Generator().manual_seed(seed)
    for item in range(num_questions):
        truth = gap * torch.randn(2, generator=generator, dtype=torch.float64)
        normal = torch.randn(1, num_orderings, generator=generator, dtype=torch.float64)
        scores = spread * normal - spread**2 / 2
        exact, sampled = truth.tolist()
        yield Question(item, [Choice(exact), Choice(sampled, scores)], truth)
