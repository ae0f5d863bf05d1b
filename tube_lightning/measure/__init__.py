"""Parts on disk -> quantities of the corpus, with their errors. Needs no network."""

from tube_lightning.measure.banks import Bank
from tube_lightning.measure.corpus import CorpusCounts, RegimeValues, measure_regimes
from tube_lightning.measure.differences import difference_name, measure_against
from tube_lightning.measure.parts import RunParts
from tube_lightning.measure.tails import Tail

__all__ = [
    "Bank",
    "CorpusCounts",
    "RegimeValues",
    "RunParts",
    "Tail",
    "difference_name",
    "measure_against",
    "measure_regimes",
]
