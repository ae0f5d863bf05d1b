"""The nats of a run's compared quantities, by sequence and by document of the shared text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from tube_lightning.bounds import headline_bound
from tube_lightning.compare.runs import ComparedRun
from tube_lightning.measure import Bank, Pieces, RegimeQuantities, counted_values, sum_pieces
from tube_lightning.metrics import ELBO_K, EXACT, Quantity, TextSums
from tube_lightning.records import map_tensors
from tube_lightning.scores import BlockScores, RegimeView


@dataclass(frozen=True, eq=False)
class RunSums:
    """Sums of quantities over sequences and documents; the bytes are the last row, where known."""

    names: tuple[str, ...]
    of_banks: dict[str, tuple[str, ...]]
    """the rows of each bank of several, by the name of the whole"""
    arms: tuple[str, ...]
    has_bytes: bool
    one_bank: bool
    """values are of one bank of orderings, whose luck nothing shows"""
    sequences: Pieces
    documents: Pieces | None

    @property
    def lower(self) -> str:
        """The quantity that log p is at least."""
        return EXACT if EXACT in self.names else ELBO_K

    @property
    def upper(self) -> str | None:
        """The quantity that log p is at most; None with too few orderings, and of a bank's mean."""
        if EXACT in self.names:
            return EXACT
        name = headline_bound("upper", "fresh").name
        return name if name in self.names and not (self.one_bank or self.of_banks) else None

    def keep_documents(self, numbers: Int64[Tensor, " documents"]) -> "RunSums":
        """Keep some documents, and let them stand for the sequences: each is a piece of text."""
        if self.documents is None:
            raise ValueError("documents: expected those of every token, got none")
        there, sums = self.documents
        kept = torch.isin(there, numbers)
        pieces = Pieces(there[kept], TextSums(sums.nats[:, kept], sums.tokens[kept]))
        return replace(self, sequences=pieces, documents=pieces)

    def row(self, name: str, pieces: Pieces, per_byte: bool) -> TextSums:
        """Take one quantity, over tokens or over bytes."""
        number = self.names.index(name)
        divisor = pieces.sums.nats[-1] if per_byte else pieces.sums.tokens
        return TextSums(pieces.sums.nats[number : number + 1], divisor.double())


def sum_run(run: ComparedRun, sequences: Int64[Tensor, " sequences"] | None = None) -> RunSums:
    """Sum what is compared of a run in one pass, over some sequences (None = all)."""
    bank, wanted = Bank.of(run.record.protocol), None
    by_sequence: list[Pieces] = []
    by_document: list[Pieces | None] = []
    has_bytes = True
    for part in _take(run, sequences):
        view = _show(run, part, bank)
        wanted = wanted or _Wanted.of(view, run)
        values = counted_values(wanted.quantities, view, part)
        has_bytes = has_bytes and part.num_bytes is not None
        sizes = torch.zeros_like(part.num_tokens) if part.num_bytes is None else part.num_bytes
        pieces, documents = sum_pieces(torch.cat([values, sizes.double()[None]]), part)
        by_sequence.append(pieces)
        by_document.append(documents)
    if wanted is None:
        raise ValueError(f"{run.directory}: expected scored sequences, got none")
    known = [documents for documents in by_document if documents is not None]
    exact = EXACT in wanted.names
    return RunSums(
        wanted.names,
        wanted.of_banks,
        wanted.arms,
        has_bytes,
        bank is not None and bank.num_banks < 2 and not exact,
        Pieces.join(by_sequence),
        Pieces.join(known) if len(known) == len(by_document) else None,
    )


@dataclass(frozen=True)
class _Wanted:
    """What is compared of a run: its exact value or its bracket, each bank of it, and its ARMs."""

    quantities: Sequence[Quantity]
    of_banks: dict[str, tuple[str, ...]]
    arms: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(quantity.name for quantity in self.quantities)

    @staticmethod
    def of(view: RegimeView, run: ComparedRun) -> "_Wanted":
        """Choose by what there is."""
        known = RegimeQuantities.of(view, run.record.estimators)
        upper = headline_bound("upper", run.record.protocol.draws).name
        ends = (EXACT,) if view.regime.exact is not None else (ELBO_K, upper)
        told = [q for q in known.reported if q.name in ends]
        banks = {name: found for name, found in known.of_banks.items() if name in ends}
        several = [bank for found in banks.values() for bank in found]
        return _Wanted(
            [*told, *several, *known.arms],
            {name: tuple(bank.name for bank in found) for name, found in banks.items()},
            tuple(arm.name for arm in known.arms),
        )


def _take(run: ComparedRun, sequences: Int64[Tensor, " sequences"] | None) -> Iterator[BlockScores]:
    """Read the chosen regime of the chosen sequences, part after part."""
    for part in run.parts:
        taken = replace(part, regimes={run.regime: part.regimes[run.regime]}, texts=None)
        if sequences is None:
            yield taken
            continue
        kept: Bool[Tensor, " batch"] = torch.isin(part.sequences, sequences)
        if kept.any():
            yield _pick(taken, kept)


def _pick(part: BlockScores, kept: Bool[Tensor, " batch"]) -> BlockScores:
    return map_tensors(lambda _, tensor: tensor[kept], part)


def _show(run: ComparedRun, part: BlockScores, bank: Bank | None) -> RegimeView:
    """Show the regime; what is exact needs no resamples of a bank."""
    if bank is None or part.regimes[run.regime].exact is not None:
        return part.views()[run.regime]
    return bank.views(part, run.record.estimators)[run.regime]


def same_values(ours: Float64[Tensor, " pieces"], theirs: Float64[Tensor, " pieces"]) -> bool:
    """Tell whether a model scored the same, up to what batches of another size change in fp32."""
    return ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)
