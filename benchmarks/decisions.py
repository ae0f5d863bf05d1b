"""How often the likeliest of some texts is named, and how often wrongly.

    python -m benchmarks.decisions              # random tables, and normal scores beside exact ones
    python -m benchmarks.decisions --models bd3lm_l4 bd3lm_l8

Each question is answered from K orderings a block in three ways: by ``decide``; by plain
percentiles of ELBO_K over resamples; by brackets (one's ELBO_K above the TUBE of all others).
``inside`` is the share of choices whose exact value is in their own bracket.
"""

import argparse
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.decision_questions import (
    Question,
    gaussian_questions,
    make_questions,
    model_tables,
    random_tables,
)
from tube_lightning.bounds import elbo_k
from tube_lightning.decisions import decide

NUM_RESAMPLES = 400
CONFIDENCE = 0.95


def by_decide(question: Question) -> int | None:
    """Answer by ``decide``."""
    return decide(
        question.choices, item=question.item, confidence=CONFIDENCE, num_resamples=NUM_RESAMPLES
    ).winner


def by_percentiles(question: Question) -> int | None:
    """Answer by whoever has the largest ELBO_K in nearly all resamples."""
    generator = torch.Generator().manual_seed(question.item)
    values = []
    for choice in question.choices:
        scores = choice.sampled
        shape = (NUM_RESAMPLES, *scores.shape)
        places = torch.randint(scores.shape[1], shape, generator=generator)
        resamples = elbo_k(scores.expand(shape).gather(-1, places))
        values.append(choice.exact_nats + resamples.sum(dim=-1))
    winners = torch.stack(values).argmax(dim=0).bincount(minlength=len(values))
    return int(winners.argmax()) if winners.max() >= CONFIDENCE * NUM_RESAMPLES else None


def by_brackets(question: Question) -> int | None:
    """Answer by whose lower end is above the upper ends of all others."""
    best = int(question.lower.argmax())
    others = torch.arange(len(question.choices)) != best
    return best if question.lower[best] > question.upper[others].max() else None


RULES: dict[str, Callable[[Question], int | None]] = {
    "decide": by_decide,
    "percentiles": by_percentiles,
    "brackets": by_brackets,
}


@dataclass
class Level:
    """How the answers of one rule turned out."""

    questions: int = 0
    decided: int = 0
    wrong: int = 0

    def count(self, answer: int | None, question: Question) -> None:
        """Compare an answer with the exact one."""
        self.questions += 1
        self.decided += answer is not None
        self.wrong += answer is not None and answer != int(question.truth.argmax())

    def __str__(self) -> str:
        """Print the share decided, and the wrong: of the decided, and of all."""
        wrong = f"{self.wrong / max(self.decided, 1):.1%} ({self.wrong / self.questions:.1%})"
        return f"{self.decided / self.questions:.1%} {wrong}"


def measure(rule: Callable[[Question], int | None], questions: Iterable[Question]) -> Level:
    """Answer questions by a rule."""
    level = Level()
    for question in questions:
        level.count(rule(question), question)
    return level


def share_inside(questions: Iterable[Question]) -> float:
    """Tell how often the exact value of a choice is inside of its bracket."""
    inside = [(q.lower <= q.truth) & (q.truth <= q.upper) for q in questions]
    return torch.cat(inside).double().mean().item()


def main() -> None:
    """Print shares: decided, and of those wrong (in brackets: of all)."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--orderings", type=int, nargs="*", default=[8, 32, 128])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    table = Table("questions", "gap", "K", "inside", *(f"{name}: decided, wrong" for name in RULES))
    for name, gap, count, questions in _sources(options):
        shares = [str(measure(rule, questions)) for rule in RULES.values()]
        table.add_row(name, str(gap), str(count), f"{share_inside(questions):.1%}", *shares)
    Console(width=120).print(table)


def _sources(
    options: argparse.Namespace,
) -> Iterator[tuple[str, float | None, int, list[Question]]]:
    number, seed = options.questions, options.seed
    sources = {name: model_tables(name, number, seed) for name in options.models} or {
        f"tables of {size}": random_tables(seed, number, size) for size in (4, 6)
    }
    for name, tables in sources.items():
        for gap, count in itertools.product((None, 2.0, 0.1), options.orderings):
            yield name, gap, count, list(make_questions(tables, count, gap=gap, seed=seed))
    if not options.models:
        for spread, gap, count in itertools.product((1, 2, 3), (2.0, 0.01), options.orderings):
            questions = gaussian_questions(spread, number, count, gap=gap, seed=seed)
            yield f"normal, sd {spread}", gap, count, list(questions)


if __name__ == "__main__":
    main()
