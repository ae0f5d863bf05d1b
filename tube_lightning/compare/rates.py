"""Rates of entries on the shared text, and paired differences of them, with errors."""

from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from tube_lightning.compare.runs import ComparedRun
from tube_lightning.compare.sums import RunSums, same_values
from tube_lightning.measure import Pieces, total_nats, widen
from tube_lightning.metrics import Measured, TextSums, difference_of_rates, rate_errors


@dataclass(frozen=True, eq=False)
class Entrant:
    """What is compared: a run's block model, or an ARM that one run or several have."""

    label: str
    runs: tuple[ComparedRun, ...]
    sums: RunSums
    lower: str
    upper: str | None
    arm: str | None = None
    """its name in the runs; None for a block model"""

    @property
    def depends_on_luck(self) -> bool:
        """Tell whether one bank of orderings decides."""
        return self.sums.one_bank and self.arm is None


def list_entrants(runs: list[ComparedRun], sums: list[RunSums]) -> list[Entrant]:
    """List the runs, then their ARMs, each of which once that scored the same in several runs."""
    models = [
        Entrant(run.label, (run,), of_run, of_run.lower, of_run.upper)
        for run, of_run in zip(runs, sums, strict=True)
    ]
    arms: list[Entrant] = []
    for run, of_run in zip(runs, sums, strict=True):
        for name in of_run.arms:
            arm = Entrant(name, (run,), of_run, name, name, name)
            known = next((n for n, other in enumerate(arms) if _is_same(arm, other)), None)
            if known is None:
                arms.append(arm)
            else:
                other = arms[known]
                arms[known] = Entrant(
                    name, (*other.runs, run), other.sums, other.lower, other.upper, other.arm
                )
    return [*models, *(_name_arm(arm, arms) for arm in arms)]


def _is_same(ours: Entrant, theirs: Entrant) -> bool:
    if ours.arm != theirs.arm:
        return False
    our_sums, their_sums = (
        arm.sums.row(arm.lower, arm.sums.sequences, per_byte=False) for arm in (ours, theirs)
    )
    return (
        torch.equal(ours.sums.sequences.numbers, theirs.sums.sequences.numbers)
        and torch.equal(our_sums.tokens, their_sums.tokens)
        and same_values(our_sums.nats[0], their_sums.nats[0])
    )


def _name_arm(arm: Entrant, arms: list[Entrant]) -> Entrant:
    """Name an ARM, and its runs where others have another one."""
    title = "ARM" if arm.arm == "arm" else "ARM (fine-tuned)"
    if sum(other.arm == arm.arm for other in arms) > 1:
        folders = dict.fromkeys(run.label.partition(", ")[0] for run in arm.runs)
        title += f" of {' and '.join(folders)}"
    return Entrant(title, arm.runs, arm.sums, arm.lower, arm.upper, arm.arm)


def measure_rate(entrant: Entrant, name: str, *, per_byte: bool) -> Measured:
    """Measure nats per token or per byte, with the error over documents or along the text."""
    sums = entrant.sums
    sequences = sums.row(name, sums.sequences, per_byte)
    documents = None if sums.documents is None else sums.row(name, sums.documents, per_byte)
    value = Measured(_rate(sequences), rate_errors(sequences, documents)[0], _size(sequences))
    return _add_luck(value, entrant, name, per_byte)


def measure_difference(
    ours: tuple[Entrant, str], theirs: tuple[Entrant, str], *, per_byte: bool
) -> Measured:
    """Measure our log-likelihood minus theirs, paired by the pieces of text."""
    (our_entrant, our_name), (their_entrant, their_name) = ours, theirs
    sequences = [e.sums.row(n, e.sums.sequences, per_byte) for e, n in (ours, theirs)]
    rates = [_rate(sums) for sums in sequences]
    paired = difference_of_rates(*sequences)
    error = rate_errors(paired, _paired_documents(ours, theirs, per_byte))[0]
    value = 0.0 if rates[0] == rates[1] else rates[0] - rates[1]
    measured = Measured(value, error, _size(paired))
    measured = _add_luck(measured, our_entrant, our_name, per_byte)
    return _add_luck(measured, their_entrant, their_name, per_byte)


def _paired_documents(
    ours: tuple[Entrant, str], theirs: tuple[Entrant, str], per_byte: bool
) -> TextSums | None:
    """Pair by documents: one of which a run scored nothing has zeros there."""
    our_pieces, their_pieces = ours[0].sums.documents, theirs[0].sums.documents
    if our_pieces is None or their_pieces is None:
        return None
    numbers = torch.cat([our_pieces.numbers, their_pieces.numbers]).unique()
    placed = [
        _place(e.sums.row(n, pieces, per_byte), pieces, numbers)
        for (e, n), pieces in ((ours, our_pieces), (theirs, their_pieces))
    ]
    return difference_of_rates(*placed)


def _place(sums: TextSums, pieces: Pieces, numbers: Int64[Tensor, " documents"]) -> TextSums:
    place = torch.searchsorted(numbers, pieces.numbers)
    nats, tokens = sums.nats.new_zeros(1, len(numbers)), sums.tokens.new_zeros(len(numbers))
    return TextSums(nats.index_copy(1, place, sums.nats), tokens.index_copy(0, place, sums.tokens))


def _add_luck(value: Measured, entrant: Entrant, name: str, per_byte: bool) -> Measured:
    """Add the spread over several banks to the error; banks of two runs count as independent."""
    sums = entrant.sums
    rates = [_rate(sums.row(b, sums.sequences, per_byte)) for b in sums.of_banks.get(name, ())]
    return widen(value, rates) if rates else value


def _rate(sums: TextSums) -> float:
    return total_nats(sums.nats[0]) / float(sums.tokens.sum())


def _size(sums: TextSums) -> int:
    return round(float(sums.tokens.sum()))
