"""What is in ``results.json``.

JSON has no infinities. A bound of +inf nats has ``ppl`` 0.0, and null for ``nats_per_token`` and
``bits_per_byte``; one of -inf nats has null for all three. What cannot be told (the error of a
single sequence) is null as well. Bounds hold for ``nats_per_token``, in expectation. With re-seeds
(protocol=paper) ``ppl`` is the mean of their perplexities, while ``bits_per_byte`` belongs to
``nats_per_token``.
"""

from typing import Any, Literal, NotRequired, TypedDict

from tube_lightning.bounds import Side
from tube_lightning.measure import Tail
from tube_lightning.metrics import Method

SCHEMA_VERSION = 4
Winner = Literal["arm", "model"]
Holds = Literal[
    "exactly",
    "in expectation, for nats",
    "in expectation, for nats of the bank's mean",
    "not",
]
"""What is promised of a value, and in which unit."""


class Estimate(TypedDict):
    """One quantity of the corpus."""

    ppl: float | None
    """exp(-nats_per_token); with re-seeds, the mean of their perplexities"""
    nats_per_token: float | None
    """log-likelihood, or its estimate, per scored token"""
    bits_per_byte: float | None
    """-nats_per_token * tokens / bytes / ln 2; null where bytes are unknown"""
    ppl_per_word: float | None
    """exp(nats per byte * bytes per word of the text), words parted by white space, as in lm-eval;
    null where they are unknown"""
    ci95: list[float] | None
    """[low, high] of the perplexity on other text of the kind (Student's t); for a bound, of its
    expectation over orderings: not of log p"""
    standard_error: float | None
    """of nats_per_token"""
    degrees_of_freedom: float | None
    """of the standard error"""
    error_method: Method
    """over documents, along the sequences of the text, or none: docs/PROTOCOLS.md"""
    effective_sequences: float | None
    """how many independent sequences would have this error"""
    side: Side | None
    """the side of log p(x) that it bounds: an upper bound of log p is a lower one of perplexity"""
    bound_preserving: bool
    """whether its expectation keeps to that side with finitely many orderings"""
    holds: Holds
    """what is promised: of a bound, that the expectation of its nats_per_token keeps to its side"""
    wrong_side: bool | None
    """whether it is on the wrong side of the regime's exact value (ELBO_K where there is none)"""
    violated: bool | None
    """whether the 95% interval of the paired difference is, too: marked with !"""
    std: NotRequired[float | None]
    """of the perplexity over re-seeds, or over seeds of the ELBO (protocol=paper only)"""


class Counts(TypedDict):
    """How much was evaluated."""

    sequences: int
    """sequences that were scored"""
    documents: int | None
    """documents that their tokens are from; null where unknown (token ids)"""
    blocks: int
    """blocks with at least one scored token"""
    tokens: int
    """scored tokens: the denominator of everything per token"""
    bytes: int | None
    """of the original text, those of the scored tokens; null where unknown (token ids in files)"""
    bytes_per_word: float | None
    """of the text before it was tokenised; null where unknown"""
    batches: int
    """part files"""
    orderings: int
    """sampled orderings of a block (of each bank, if there are several) that estimators used"""


class Seconds(TypedDict):
    """Where the time went."""

    scoring: float
    """the parts' seconds, summed over devices"""
    report: float
    """this report"""


class PaperCell(TypedDict):
    """One number of ours, beside the paper's."""

    ours: float | None
    """our perplexity"""
    paper: float
    """the paper's perplexity"""
    paper_std: float | None
    """the paper's +-"""
    difference: float | None
    """ours - paper"""


class PaperComparison(TypedDict):
    """Our perplexities beside a table of the paper."""

    table: str
    """owt or lm1b"""
    block_size: int
    """its rows"""
    arm: PaperCell | None
    """the autoregressive baseline"""
    drawn_alike: bool
    """whether orderings were as many and drawn as the paper's; else sampled values are left out"""
    regimes: dict[str, dict[str, PaperCell]]
    """by regime and estimator; the paper's TUBE is ``tube_split``"""


class Comparison(TypedDict):
    """The block model against the ARM, in the regime that the verdict is about."""

    regime: str
    """ao_arm, if there is one"""
    winner: Winner | None
    """null if not distinguishable, or nothing can be told"""
    by: str
    """the quantity that is compared with the ARM: exact, ELBO_K if the block model wins, else TUBE
    (ELBO_K without it)"""
    nats_per_token: float | None
    """log p - log p_ARM by that quantity"""
    ci95: list[float] | None
    """of nats_per_token"""
    p_arm_is_better: float | None
    """one-sided p-value against "the ARM is not better", by the upper end of log p"""
    p_model_is_better: float | None
    """one-sided p-value against "the block model is not better", by the lower end of log p"""


class PerByte(TypedDict):
    """The block model against an ARM of another tokenizer, on the bytes that both score.

    Each reads the same documents in its own windows; bytes that either is given count for neither.
    The ARM is no surrogate of TUBE: it has no density of the block model's blocks.
    """

    arm: dict[str, Any]
    """checkpoint, tokenizer and length of its windows"""
    regime: str
    """of the block model"""
    bytes: int
    """that both score: the denominator of everything here"""
    documents: int | None
    """that they are of"""
    bits_per_byte: dict[str, float | None]
    """of the block model: exact, or the ends of the bracket"""
    arm_bits_per_byte: float | None
    winner: Winner | None
    """null if not distinguishable, or nothing can be told"""
    by: str
    """the quantity of the block model that is compared"""
    difference: float | None
    """log p - log p_ARM by that quantity, in bits per byte: + is better"""
    ci95: list[float] | None
    """of the difference, over documents"""
    p_arm_is_better: float | None
    """one-sided p-value against an ARM that is not better"""
    p_model_is_better: float | None
    """one-sided p-value against a block model that is not better"""
    sentence: str
    """the same for people"""


class Results(TypedDict):
    """The whole of ``results.json``."""

    schema_version: int
    """of this layout"""
    verdict: str
    """who has the better likelihood, in one sentence"""
    comparison: Comparison | None
    """the test behind it; null without an ARM"""
    perplexity_bias: float | None
    """bounds hold for nats: perplexities of bounds may be too high by this share (Jensen); 0 where
    it is negligible, null where unknown"""
    warnings: list[str]
    """what makes these numbers less sure than they look"""
    regimes: dict[str, dict[str, Estimate]]
    """by regime (ao_arm, nfe_1, ...) and name (exact, elbo, elbo_k, tube, tube_split, cubo, ...)"""
    arm: Estimate | None
    """the autoregressive model on the same tokens"""
    arm_ft: Estimate | None
    """the one fine-tuned on the block model's samples"""
    per_byte: PerByte | None
    """against an ARM of another tokenizer; null without one"""
    counts: Counts
    """how much was evaluated"""
    tails: dict[str, Tail]
    """by regime: how heavy the tail of the gap is"""
    paper: PaperComparison | None
    """the paper's numbers, if the run names one of its tables"""
    estimators: dict[str, Any]
    """the estimators' settings"""
    protocol: dict[str, Any]
    """how orderings were drawn"""
    model: dict[str, Any]
    """the block model: checkpoint and block_size"""
    data: dict[str, Any]
    """the text: source, tokenizer, token_sha256, ..."""
    seconds: Seconds
    """where the time went"""
    versions: dict[str, str]
    """of the packages that scored"""
    config: dict[str, Any]
    """the run's settings"""
