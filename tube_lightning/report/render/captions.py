"""The sentences around the table: what it shows, what its signs mean, nats and bits per byte."""

from collections.abc import Callable

from tube_lightning.bounds import Estimator, EstimatorSettings, headline_bound
from tube_lightning.metrics import EXACT
from tube_lightning.protocol import Protocol
from tube_lightning.regimes import Regime, headline
from tube_lightning.report.render.rows import (
    Relation,
    draws_of,
    regime_cells,
    shown_estimators,
    table_rows,
)
from tube_lightning.report.schema import Estimate, Results
from tube_lightning.report.wording import counted, ppl_text


def caption(results: Results, source: str | None = None) -> str:
    """Say what the table shows, of a text that may have another name than in the results."""
    counts, name = results["counts"], source or results["data"]["source"]
    protocol = Protocol(**results["protocol"])
    parts = [
        f"Perplexity on {name}: {counted(counts['tokens'], unit_of(results))} in "
        f"{counted(counts['sequences'], 'sequence')}, blocks of {results['model']['block_size']}, "
        f"{counted(counts['orderings'], 'ordering')}."
    ]
    if (reseeds := protocol.num_reseeds) > 1:
        seeds = protocol.elbo_seeds
        of_the_elbo = f" ({seeds} seeds for the ELBO)" if seeds else ""
        parts.append(f"+- is the standard deviation over {reseeds} re-seeds{of_the_elbo}.")
    if (arm := results["arm"]) is not None:
        interval = arm["ci95"]
        error = "" if interval is None else f" (95%: {' to '.join(map(ppl_text, interval))})"
        parts.append(f"The ARM has {ppl_text(arm['ppl'])}{error}.")
    return " ".join(parts)


def legend(results: Results) -> list[str]:
    """Explain the signs that the table uses, and give bits per byte where bytes are known."""
    biased = _enumerate([c.title for c in _biased_estimators(results)])
    lines = [f"{_holding(results)}; {biased} (biased) promise nothing.", *_bias(results)]
    regimes = results["regimes"].values()
    settings = EstimatorSettings(**results["estimators"])
    for estimator in shown_estimators(results):
        divisor = estimator.divisor(settings)
        if divisor > 1 and not any(estimator.name in estimates for estimates in regimes):
            lines.append(f"{estimator.title} needs a multiple of {divisor} orderings.")
    return [*lines, *_marks(results), *_errors(results), *_rates(results)]


def _holding(results: Results) -> str:
    """Say what >= and <= mean."""
    protocol = Protocol(**results["protocol"])
    if protocol.draws == "fresh":
        return ">= and <= hold in expectation over orderings, for nats per token"
    banks = protocol.num_banks
    shared = "one bank" if banks == 1 else f"{banks} banks"
    luck = "do not include" if banks == 1 else "include"
    return (
        f"All blocks share {shared} of orderings: >= holds in expectation for a bank's mean, "
        f"which is ELBO_K, and <= over draws of the bank; errors {luck} how lucky the draw was"
    )


def _bias(results: Results) -> list[str]:
    """Say where nats and perplexity are not the same matter."""
    bias, blocks = results["perplexity_bias"], counted(results["counts"]["blocks"], "block")
    if bias == 0:
        return []
    size = f"by up to {100 * bias:.2g}%" if bias is not None and bias < 1 else "by any factor"
    return [f"Perplexities of bounds may be too high {size} on {blocks} (Jensen's inequality)."]


def _marks(results: Results) -> list[str]:
    """Explain the marks that stand in the table."""
    reference = "the wrong side of the exact value, or of ELBO_K where there is none"
    told = {
        "!": f"! on {reference}, and so is the 95% interval of the paired difference.",
        "~": f"~ on {reference}, but not beyond the error of the difference, if that is known.",
    }
    cells = [cell for row in table_rows(results) for cell in row.cells if cell is not None]
    return [text for mark, text in told.items() if any(cell.mark == mark for cell in cells)]


def _errors(results: Results) -> list[str]:
    """Say over what errors are, by the ARM or the regime that a summary is about."""
    counts, regime = results["counts"], results["regimes"][headline(results["regimes"])]
    value = results["arm"] or regime.get(EXACT) or next(iter(regime.values()))
    sequences, documents = counted(counts["sequences"], "sequence"), counts["documents"]
    match value["error_method"]:
        case "documents":
            degrees, worth = value["degrees_of_freedom"] or 0.0, value["effective_sequences"] or 0.0
            return [
                f"95% intervals over {counted(documents or 0, 'document')} (Student's t with "
                f"{degrees:.0f} degrees); {sequences} are worth {worth:.0f} independent ones."
            ]
        case "sequences":
            degrees, worth = value["degrees_of_freedom"] or 0.0, value["effective_sequences"] or 0.0
            one = " of one document" if documents == 1 else ""
            return [
                f"95% intervals along the text{one} (Student's t with {degrees:.0f} degrees); "
                f"{sequences} are worth {worth:.0f} independent ones."
            ]
        case _:
            known = "" if documents is None else f" of {counted(documents, 'document')}"
            return [f"No intervals: errors cannot be told from {sequences}{known}."]


def _rates(results: Results) -> list[str]:
    """Write nats per token, for which bounds hold; bits per byte and words where known."""
    counts, unit = results["counts"], unit_of(results)
    num_tokens, num_bytes = counts["tokens"], counts["bytes"]
    lines = [(f"Nats per {unit}", _tell(results, _nats_text), counted(num_tokens, unit))]
    if num_bytes:
        sizes = f"{counted(num_tokens, 'token')} of {counted(num_bytes, 'byte')}"
        lines.append(("Bits per byte", _tell(results, _bits_text), sizes))
    if num_bytes and counts["bytes_per_word"]:
        sizes = f"{counts['bytes_per_word']:.2f} bytes a word"
        lines.append(("Perplexity per word", _tell(results, _word_text), sizes))
    told = [f"{title}: {values}; {sizes}." for title, values, sizes in lines if values]
    return [*told, *_other_tokens(results)]


def unit_of(results: Results) -> str:
    """Name what a perplexity is of: tokens of one byte each are called so."""
    counts = results["counts"]
    of_one = (counts["bytes"] or 0) <= counts["tokens"]
    return "byte" if results["data"]["tokenizer"] == "byte" and of_one else "token"


def _other_tokens(results: Results) -> list[str]:
    """Write the comparison with an ARM of another tokenizer."""
    found = results["per_byte"]
    if found is None:
        return []
    title = Regime.parse(found["regime"]).title
    ends = [value for value in found["bits_per_byte"].values() if value is not None]
    ours = " to ".join(f"{bits:.4f}" for bits in ends) or "inf"
    theirs = found["arm_bits_per_byte"]
    told = "inf" if theirs is None else f"{theirs:.4f}"
    return [
        f"Bits per byte of the {counted(found['bytes'], 'byte')} that both score: {told} (ARM with "
        f"the tokenizer {found['arm']['tokenizer']}), {ours} ({title}); what either is given "
        "counts for neither."
    ]


def _tell(results: Results, text: Callable[[Estimate, Relation], str]) -> str:
    """Write the ARM and the regime that a summary is about, with the signs of the table."""
    name, arm = headline(results["regimes"]), results["arm"]
    estimates, cells = results["regimes"][name], regime_cells(name, results)
    ends = [headline_bound(side, draws_of(results)).name for side in ("upper", "lower")]
    known = {
        "ARM": [] if arm is None else [text(arm, "")],
        Regime.parse(name).title: [
            text(estimates[end], cells[end].relation)
            for end in ([EXACT] if EXACT in cells else ends)
            if end in cells
        ],
    }
    told = {who: " and ".join(dict.fromkeys(filter(None, texts))) for who, texts in known.items()}
    return ", ".join(f"{values} ({who})" for who, values in told.items() if values)


_OF_LIKELIHOOD: dict[Relation, Relation] = {">=": "<=", "<=": ">=", "=": "=", "": ""}
"""What is at least so large a perplexity is at most so large a likelihood."""


def _nats_text(estimate: Estimate, relation: Relation) -> str:
    nats = estimate["nats_per_token"]
    return "" if nats is None else f"{_OF_LIKELIHOOD[relation]} {nats:.4f}".strip()


def _bits_text(estimate: Estimate, relation: Relation) -> str:
    bits = estimate["bits_per_byte"]
    return "" if bits is None else f"{relation} {bits:.4f}".strip()


def _word_text(estimate: Estimate, relation: Relation) -> str:
    ppl = estimate["ppl_per_word"]
    return "" if ppl is None else f"{relation} {ppl_text(ppl)}".strip()


def _biased_estimators(results: Results) -> list[Estimator]:
    return [e for e in shown_estimators(results) if not e.bound_preserving]


def _enumerate(titles: list[str]) -> str:
    """Write a list as English does: A, B and C."""
    return " and ".join([", ".join(titles[:-1]), *titles[-1:]] if titles[1:] else titles)
