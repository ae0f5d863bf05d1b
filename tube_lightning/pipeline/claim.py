"""What the scores in a directory depend on: who continues there must bring the same."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tube_lightning.data import Order, TokenSequences
from tube_lightning.evaluator import EvaluationData, Plan
from tube_lightning.networks import model_identity
from tube_lightning.rundir import claim_directory, read_claim
from tube_lightning.scores import LAYOUT

_WHERE_MODELS_ARE = ("checkpoint", "revision", "plugin")
_READ = "num_sequences"
"""How many sequences were read, where only the beginning of a text is."""


def claim(
    data: EvaluationData,
    plan: Plan,
    models: Mapping[str, object],
    directory: Path,
    settings: Mapping[str, Any],
) -> None:
    """Make the directory the home of all that scores depend on, and of nothing else.

    Where files are does not matter: texts and weights are known by their hashes. Of a text that is
    read from its beginning more may be read later: what is scored stays.
    """
    identities = {name: model_identity(model) for name, model in models.items()}
    given = {name: settings.get(name) or {} for name in models}
    depends_on: dict[str, Any] = {
        name: {key: value for key, value in options.items() if key not in _WHERE_MODELS_ARE}
        for name, options in given.items()
    }
    depends_on |= {
        "layout_of_scores": LAYOUT,
        "batch_size": data.batch_size,
        "order": data.order,
        "protocol": plan.identity(),
        "models": identities,
        **_identify_text(data.text),
    }
    if data.order == "contiguous":
        depends_on[_READ] = len(data.text)
    before = read_claim(directory) or {}
    grown = (*_identify_text(data.text), _READ) if _begins_so(data, before) else ()
    claim_directory(directory, depends_on, settings, may_change=grown)
    for name, identity in identities.items():
        if identity["weights_sha256"] is None and data.files.finished():
            raise ValueError(
                f"output_dir: {directory} has scores, and whether they are of this {name} cannot "
                "be told; choose another, or give the model an attribute `fingerprint`"
            )


def most_sequences(
    num_batches: int | None, batch_size: int, order: Order, directory: Path
) -> int | None:
    """Tell how much of a text is to be read: only its beginning, if nothing else is taken.

    At least as much as in an earlier run there, so that it can be told to be the same text.
    """
    if num_batches is None or order != "contiguous":
        return None
    before = (read_claim(directory) or {}).get(_READ)
    return max(num_batches * batch_size, before if isinstance(before, int) else 0)


def _identify_text(text: TokenSequences) -> dict[str, Any]:
    return {
        "token_sha256": text.sha256,
        "documents_sha256": text.documents_sha256,
        "num_bytes": text.num_scored_bytes,
    }


def _begins_so(data: EvaluationData, before: Mapping[str, Any]) -> bool:
    """Tell whether a text begins with what an earlier run read of it, in whole batches."""
    count = before.get(_READ)
    if data.order != "contiguous" or not isinstance(count, int) or count > len(data.text):
        return False
    if count % data.batch_size:
        return False
    start = _identify_text(data.text.first(count))
    return all(before.get(key) == value for key, value in start.items())
