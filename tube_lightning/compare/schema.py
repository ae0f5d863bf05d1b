"""What is in ``comparison.json``. JSON has no infinities: what is infinite or unknown is null."""

from typing import Literal, TypedDict

from tube_lightning.bounds import Side
from tube_lightning.metrics import Method

SCHEMA_VERSION = 1
Unit = Literal["nats_per_token", "bits_per_byte"]
Word = Literal["better", "worse", "not distinguishable", "not judged"]


class ComparedValue(TypedDict):
    """An exact value or one end of a bracket, on the text that all runs share."""

    name: str
    """exact, or the estimator: elbo_k, tube, tube_split"""
    side: Side | None
    """the side of log p that it bounds, in expectation; null for exact values"""
    nats_per_token: float | None
    """log-likelihood; null where runs have other tokens"""
    ppl: float | None
    """exp(-nats_per_token)"""
    ppl_ci95: list[float] | None
    """on other text of the kind; for a bound, of its expectation"""
    bits_per_byte: float | None
    """null where bytes are unknown"""
    bits_per_byte_ci95: list[float] | None
    """on other text of the kind; for a bound, of its expectation"""


class ComparedDifference(TypedDict):
    """One paired difference of log-likelihoods, ours minus the first run's: + is better."""

    by: list[str]
    """the quantities: ours, and the first run's"""
    value: float | None
    """in the comparison's unit"""
    ci95: list[float] | None
    """Student's t"""
    standard_error: float | None
    """paired by sequence or document"""
    degrees_of_freedom: float | None
    """of the standard error"""
    error_method: Method
    """over documents, along the text, or none"""


class AgainstFirst(TypedDict):
    """An entry against the first run; exact values make both differences the same."""

    at_least: ComparedDifference | None
    """our lower end minus its upper end; null where it has none"""
    at_most: ComparedDifference | None
    """our upper end minus its lower end; null where we have none"""
    p_better: float | None
    """one-sided p-value against "not better", by at_least"""
    p_worse: float | None
    """one-sided p-value against "not worse", by at_most"""
    word: Word
    """better or worse where that p-value is below 0.025"""
    reason: str | None
    """why it was not judged"""


class ComparedEntry(TypedDict):
    """A run's block model in one regime, or an autoregressive model."""

    label: str
    """as the tables name it"""
    kind: Literal["model", "arm"]
    directories: list[str]
    """the runs that it is from: several for an ARM that they share"""
    checkpoint: str | None
    block_size: int | None
    """null for an ARM"""
    regime: str | None
    """null for an ARM"""
    upper: ComparedValue | None
    """of log p: the exact value, else TUBE; null where orderings are too few for it"""
    lower: ComparedValue
    """of log p: the exact value, else ELBO_K"""
    tokens: int
    """scored, of the shared text"""
    bytes: int | None
    """of those tokens; null where unknown"""
    against_first: AgainstFirst | None
    """null for the first run itself"""


class RunComparison(TypedDict):
    """The whole of ``comparison.json``."""

    schema_version: int
    """of this layout"""
    unit: Unit
    """of the differences: nats per token on the same tokens, else bits per byte"""
    paired_by: Literal["sequences", "documents"]
    """what the runs have in common"""
    sequences: int | None
    """that all runs scored; null where tokens differ"""
    documents: int | None
    """that all runs scored; null where unknown"""
    source: str
    """the text, as the first run names it"""
    entries: list[ComparedEntry]
    """the runs, then their ARMs"""
    notes: list[str]
    """what the numbers rest on, and what they do not say"""
