"""What the numbers of a comparison rest on, and what they do not say, in sentences."""

from collections.abc import Sequence

from tube_lightning.compare.rates import Entrant
from tube_lightning.compare.runs import ComparedRun, Pairing
from tube_lightning.compare.schema import ComparedEntry
from tube_lightning.metrics import EXACT
from tube_lightning.report import counted


def list_notes(
    runs: Sequence[ComparedRun],
    entrants: Sequence[Entrant],
    entries: Sequence[ComparedEntry],
    pairing: Pairing,
) -> list[str]:
    """List the sentences under the table."""
    unit = "nats per token" if pairing == "sequences" else "bits per byte"
    judged = [entry["against_first"] for entry in entries[1:]]
    notes = [
        f"Gain: log-likelihood above that of {entries[0]['label']} in {unit}, paired, with its 95% "
        "interval; + is better. Better and worse: one-sided p < 0.025"
        + (f"; {len(judged)} comparisons, p-values as if each were alone." if judged[1:] else ".")
    ]
    if any(EXACT not in (e.lower, e.upper) and e.arm is None for e in entrants):
        notes.append(
            "Brackets hold in expectation over orderings. Better: even the lower end (ELBO_K) is "
            "above the other's upper end (TUBE); worse: even the upper end is below its lower end; "
            "in between nothing is said."
        )
    if any(entrant.depends_on_luck for entrant in entrants):
        notes.append(
            "One bank of orderings cannot tell how lucky it was: shown, never called better or "
            "worse (protocol.num_banks, exact values can)."
        )
    return [*notes, *_scored_text(runs, entrants, pairing), *_errors(entries)]


def _scored_text(
    runs: Sequence[ComparedRun], entrants: Sequence[Entrant], pairing: Pairing
) -> list[str]:
    """Say where runs scored more than is compared, or other parts of it."""
    models = entrants[: len(runs)]
    if pairing == "documents":
        sizes = [f"{_bytes(model):,} ({model.label})" for model in models]
        note = (
            "Other tokens of the same text: first tokens and remainders differ, and each run is "
            f"divided by its own bytes, {', '.join(sizes)}."
        )
        if partial := [told for run in runs if (told := _part_of_text(run))]:
            note += (
                f" Scored were {', '.join(partial)}: documents are compared by other parts of them."
            )
        share = max(_mismatch(models[0], model) for model in models[1:])
        if share > 0.01:
            note += (
                f" At least {100 * share:.0f}% of the bytes were scored by only one of two runs: a "
                "part of the difference may be the text's."
            )
        return [note]
    notes, common = [], len(models[0].sums.sequences.numbers)
    more = {run.label: len(run.parts.sequences()) for run in runs}
    if any(number > common for number in more.values()):
        told = ", ".join(f"{number:,} ({label})" for label, number in more.items())
        notes.append(f"Only the {counted(common, 'sequence')} that all runs have, of {told}.")
    tokens = {model.label: int(model.sums.sequences.sums.tokens.sum()) for model in models}
    if len(set(tokens.values())) > 1:
        told = ", ".join(f"{number:,} ({label})" for label, number in tokens.items())
        notes.append(f"Each run is divided by the tokens it scored: {told}.")
    return notes


def _part_of_text(run: ComparedRun) -> str:
    """Say how many sequences a run scored where its text has more; else nothing."""
    if run.is_whole:
        return ""
    scored, whole = len(run.parts.sequences()), run.record.data["num_sequences"]
    return f"{scored:,} of {counted(whole, 'sequence')} ({run.label})"


def _bytes(entrant: Entrant) -> int:
    return round(float(entrant.sums.sequences.sums.nats[-1].sum()))


def _mismatch(first: Entrant, other: Entrant) -> float:
    """Return the least share of bytes that only one of two runs can have scored."""
    ours, theirs = (e.sums.sequences.sums.nats[-1] for e in (first, other))
    return float((ours - theirs).abs().sum() / (ours + theirs).sum())


def _errors(entries: Sequence[ComparedEntry]) -> list[str]:
    """Say over what the errors of the differences are."""
    told: list[str] = []
    titles = {"documents": "over documents", "sequences": "along the text"}
    for entry in entries[1:]:
        against = entry["against_first"]
        for found in () if against is None else (against["at_least"], against["at_most"]):
            if found and (over := titles.get(found["error_method"])):
                degrees = f"{found['degrees_of_freedom'] or 0.0:.0f}"
                told.append(f"{over} (Student's t with {degrees} degrees of freedom)")
    if not told:
        return ["No errors: the text is too little to tell them by."]
    return [f"Errors {', '.join(dict.fromkeys(told))}."]
