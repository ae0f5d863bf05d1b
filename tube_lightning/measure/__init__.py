"""Parts on disk -> quantities of the corpus, with their errors. Needs no network."""

from tube_lightning.measure.bank_quantities import widen
from tube_lightning.measure.banks import Bank
from tube_lightning.measure.corpus import (
    CorpusCounts,
    RegimeQuantities,
    RegimeValues,
    measure_regimes,
)
from tube_lightning.measure.differences import difference_name, measure_against
from tube_lightning.measure.ledger import Pieces, counted_values, sum_pieces, total_nats
from tube_lightning.measure.parts import RunParts
from tube_lightning.measure.shared_text import SharedText
from tube_lightning.measure.tails import Tail

__all__ = [
    "Bank",
    "CorpusCounts",
    "Pieces",
    "RegimeQuantities",
    "RegimeValues",
    "RunParts",
    "SharedText",
    "Tail",
    "counted_values",
    "difference_name",
    "measure_against",
    "measure_regimes",
    "sum_pieces",
    "total_nats",
    "widen",
]
