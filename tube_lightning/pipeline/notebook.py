"""An evaluation in one call, for notebooks and scripts of one's own."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeGuard, cast

import lightning
import numpy as np
import torch
from torch import Tensor

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.checkpoints import Checkpoint, Source, load_block_model, load_companion
from tube_lightning.data import AUTO, TextTokenizer, TokenSequences, document_sequences
from tube_lightning.evaluator import LiveValues
from tube_lightning.networks import AutoregressiveModel, BlockModel
from tube_lightning.pipeline.console import quiet_lightning
from tube_lightning.pipeline.other_tokens import read_in_other_tokens
from tube_lightning.pipeline.run import score_and_report
from tube_lightning.protocol import Protocol
from tube_lightning.report import Results, ShownResults
from tube_lightning.scores import ARM, ARM_FT


def evaluate(
    model: BlockModel[Any] | Checkpoint | Source,
    tokens: Tensor | np.ndarray | Sequence[Any] | TokenSequences | None = None,
    *,
    text: str | Sequence[str] | None = None,
    tokenizer: TextTokenizer | str = AUTO,
    length: int | None = None,
    arm: AutoregressiveModel | Checkpoint | Source | None = None,
    arm_tokenizer: str | None = None,
    arm_ft: AutoregressiveModel | Checkpoint | Source | None = None,
    protocol: Protocol | None = None,
    estimators: EstimatorSettings | None = None,
    batch_size: int = 16,
    token_budget: int | None = None,
    output_dir: str | Path | None = None,
    trainer: lightning.Trainer | None = None,
    show: bool = True,
) -> Results:
    """Bracket the likelihood of a block model on token ids or text, and compare it with an ARM.

    Models are objects, or checkpoints: where they are, or a ``Checkpoint`` with its options; an
    ``arm`` of "self" is the model itself, where it can be read from left to right. ``tokens`` are
    ids ``[sequences, length]``; token 0 of every sequence is given. Instead of them, ``text`` is a
    document or several, cut by the ``tokenizer`` (a name, a folder or a hub id; "auto" is the
    embedded one that fits) into sequences of ``length`` tokens, or as many as the model can. An ARM
    with an ``arm_tokenizer`` of its own is compared per byte. With an ``output_dir`` every finished
    batch is kept, figures and tables are written, and a second call continues; without, only the
    results come back: a mapping that prints as table and verdict. (A model of your own whose
    weights cannot be seen needs an attribute ``fingerprint`` to continue: a text that no other
    model has.) ``token_budget`` tokens are in a network at once: by default as many as the device's
    memory has place for. ``show`` prints the bar, the table and the verdict.

    >>> import torch
    >>> from tube_lightning import evaluate
    >>> tokens = torch.tensor([[3, 3, 22, 37, 33, 26, 19, 3], [37, 18, 17, 11, 38, 36, 19, 25]])
    >>> fixtures = "tests/fixtures"
    >>> results = evaluate(f"{fixtures}/bd3lm_block4", tokens, arm=f"{fixtures}/ar", show=False)
    >>> any_order = results["regimes"]["ao_arm"]
    >>> f"{any_order['exact']['ppl']:.1f} exactly, ARM {results['arm']['ppl']:.1f}"
    '65.3 exactly, ARM 66.1'
    """
    protocol, estimators = protocol or Protocol(), estimators or EstimatorSettings()
    named = {"model": model, ARM: arm, ARM_FT: arm_ft}
    checkpoints = {
        name: str(value) if _is_source(value) else type(value).__name__
        for name, value in named.items()
        if value is not None
    }

    with quiet_lightning(), tempfile.TemporaryDirectory() as scratch:
        network: Any = load_block_model(model) if _is_source(model) else model
        arms: dict[str, Any] = {
            name: load_companion(Checkpoint.of(value, {}), network) if _is_source(value) else value
            for name, value in ((ARM, arm), (ARM_FT, arm_ft))
            if value is not None
        }
        read = _reader(tokens, text, tokenizer)
        sizes = [getattr(network, name, None) for name in ("max_length", "vocab_size")]
        sequences = read(length=length or sizes[0], vocab_size=sizes[1])
        other = None
        if arm_tokenizer is not None and ARM in arms:
            other = read_in_other_tokens(
                arms.pop(ARM),
                checkpoints[ARM],
                arm_tokenizer,
                read,
                length=sequences.length,
                text=sequences,
            )
        results = score_and_report(
            network,
            arms,
            sequences,
            protocol=protocol,
            estimators=estimators,
            trainer=trainer or _quiet_trainer(show),
            directory=Path(scratch if output_dir is None else output_dir).expanduser(),
            batch_size=batch_size,
            token_budget=token_budget,
            settings={
                **{name: {"checkpoint": source} for name, source in checkpoints.items()},
                "protocol": asdict(protocol),
                "estimators": dict(estimators),
                "batch_size": batch_size,
            },
            checkpoints=checkpoints,
            other=other,
            show=show,
        )
    if results is None:
        raise RuntimeError("evaluate: the results are on rank 0; use evaluate.py for many devices")
    return cast("Results", ShownResults(results))


def _is_source(model: object) -> TypeGuard[Checkpoint | Source]:
    return isinstance(model, Checkpoint | str | PathLike)


def _reader(
    tokens: Tensor | np.ndarray | Sequence[Any] | TokenSequences | None,
    text: str | Sequence[str] | None,
    tokenizer: TextTokenizer | str,
) -> Callable[..., TokenSequences]:
    """Return what makes sequences of either: of tokens as they are, of text by a tokenizer."""
    if (tokens is None) == (text is None):
        raise ValueError("evaluate: expected either tokens or text=, got " + _BOTH[tokens is None])
    if text is None:
        given = tokens if isinstance(tokens, TokenSequences) else _as_sequences(tokens)
        return lambda **_: given
    return partial(
        document_sequences,
        [text] if isinstance(text, str) else list(text),
        tokenizer=tokenizer,
        max_sequences=None,
        per_document=True,
        append_eos=True,
        source="text",
    )


_BOTH = {True: "neither", False: "both"}


def _as_sequences(tokens: Any) -> TokenSequences:  # noqa: ANN401 (what people pass)
    """Take token ids as people have them: a tensor, an array or lists."""
    if isinstance(tokens, str) or (isinstance(tokens, list) and _has_text(tokens)):
        raise ValueError(
            'tokens: expected ids [sequences, length], got text: evaluate(model, text="...", '
            'tokenizer="byte") makes ids of it, as torch.tensor([load_tokenizer("byte").encode('
            '"...").ids]) does (tube_lightning.data.load_tokenizer)'
        )
    ids = torch.as_tensor(tokens)
    if ids.ndim != 2:
        raise ValueError(f"tokens: expected [sequences, length], got shape {tuple(ids.shape)}")
    return TokenSequences(ids, "tokens", "none")


def _has_text(tokens: list[Any]) -> bool:
    return any(isinstance(item, str) for item in tokens)


def _quiet_trainer(show: bool) -> lightning.Trainer:
    """One device, no files, and our own progress bar."""
    return lightning.Trainer(
        accelerator="auto",
        devices=1,
        logger=False,
        callbacks=[LiveValues()] if show else [],
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        inference_mode=False,
    )
