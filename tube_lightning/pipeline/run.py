"""A whole evaluation: text, then models, then scores on disk, then the report."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

import lightning
from rich.console import Console

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.checkpoints import Checkpoint, load_arm, load_block_model, read_sizes
from tube_lightning.checks import check_whole_number
from tube_lightning.cluster import disconnecting, note_start
from tube_lightning.data import Order, TokenSequences, check_order
from tube_lightning.evaluator import EvaluationData, LikelihoodEvaluation, Plan
from tube_lightning.networks import AutoregressiveModel, BlockModel, model_identity
from tube_lightning.pipeline.compatibility import check_models
from tube_lightning.pipeline.processes import (
    decides_alone,
    ends_together,
    says_how_to_continue,
)
from tube_lightning.pipeline.publishing import publish
from tube_lightning.protocol import Protocol
from tube_lightning.report import Results, check_paper_table, write_report
from tube_lightning.rundir import FIGURES_FOLDER, SCORES_FOLDER, RunRecord, claim_directory
from tube_lightning.scores import ARM, ARM_FT, LAYOUT, ScoreFiles
from tube_lightning.whole_files import UNFINISHED

PATIENCE_SECONDS = 30.0
"""How long parts that other machines wrote may take to appear on a network file system."""
_WHERE_MODELS_ARE = ("checkpoint", "revision", "plugin")
_PACKAGES = ("tube_lightning", "torch", "lightning", "torchmetrics", "transformers", "datasets")


def run_evaluation(
    *,
    model: Checkpoint,
    arm: Checkpoint | None,
    arm_ft: Checkpoint | None,
    data: Callable[..., TokenSequences],
    protocol: Protocol,
    estimators: EstimatorSettings,
    trainer: lightning.Trainer,
    output_dir: str,
    batch_size: int,
    length: int | None,
    num_batches: int | None,
    order: Order,
    paper_table: str | None,
    settings: Mapping[str, Any],
) -> Results | None:
    """Evaluate checkpoints on a text, and write everything to a directory.

    The arguments are the keys of ``configs/evaluate.yaml``, and are explained there; ``settings``
    are their values, for the record. Text is read before weights, so that what is wrong with it is
    known at once. Batches that are on disk are not scored again. Returns the results on rank 0.
    """
    check_whole_number("batch_size", batch_size, least=1)
    if num_batches is not None:
        check_whole_number("num_batches", num_batches, least=1)
    if length is not None:
        check_whole_number("length", length, least=2)
    check_order(order)
    known = read_sizes(model)
    length = known.length if length is None else length
    if known.vocab_size is None:
        raise ValueError(f"{model}: its family does not tell its vocab_size, which texts must fit")
    if length is None:
        raise ValueError(f"length: {model} does not tell it: give length=...")
    if known.length is not None and length > known.length:
        raise ValueError(f"length: expected at most {known.length}, the model's, got {length}")
    if paper_table is not None:
        check_paper_table(paper_table)
    text = data(
        length=length,
        vocab_size=known.vocab_size,
        max_sequences=_most_sequences(num_batches, batch_size, order),
    )
    arms = {name: c for name, c in ((ARM, arm), (ARM_FT, arm_ft)) if c is not None}
    return score_and_report(
        load_block_model(model),
        {name: load_arm(checkpoint) for name, checkpoint in arms.items()},
        text,
        protocol=protocol,
        estimators=estimators,
        trainer=trainer,
        directory=Path(output_dir).expanduser(),
        batch_size=batch_size,
        num_batches=num_batches,
        order=order,
        settings={**settings, "length": length},
        checkpoints={"model": str(model), **{name: str(c) for name, c in arms.items()}},
        paper_table=paper_table,
    )


def _most_sequences(num_batches: int | None, batch_size: int, order: Order) -> int | None:
    """Tell how much of a text is to be read: only its beginning, if nothing else is taken."""
    if num_batches is None or order != "contiguous":
        return None
    return num_batches * batch_size


def score_and_report(
    network: BlockModel[Any],
    arms: Mapping[str, AutoregressiveModel],
    text: TokenSequences,
    *,
    protocol: Protocol,
    estimators: EstimatorSettings,
    trainer: lightning.Trainer,
    directory: Path,
    batch_size: int,
    settings: Mapping[str, Any],
    checkpoints: Mapping[str, str],
    num_batches: int | None = None,
    order: Order = "spread",
    paper_table: str | None = None,
    show: bool = True,
) -> Results | None:
    """Score the batches that are not on disk, and report on all of them.

    ``num_batches`` are the first ones in an order of the sequences. ``arms`` are autoregressive
    models by name, arm and arm_ft. ``settings`` and ``checkpoints``, where the models are from, are
    for the record.
    """
    check_models(network, arms, text)
    files = ScoreFiles(directory / SCORES_FOLDER)
    data = EvaluationData(
        text,
        batch_size=batch_size,
        block_size=network.block_size,
        files=files,
        order=order,
        num_batches=num_batches,
    )
    plan = Plan(protocol, network.block_size)
    module = LikelihoodEvaluation(network, arms, plan, files, estimators)
    _claim(data, plan, {"model": network, **arms}, directory, settings)
    if trainer.is_global_zero:
        _remove_half_written(directory)
        note_start(directory)
        RunRecord(
            config=dict(settings),
            data=_describe_text(text, order),
            model={"checkpoint": checkpoints["model"], "block_size": network.block_size},
            arms={name: {"checkpoint": checkpoints[name]} for name in arms},
            protocol=replace(protocol, num_orderings=plan.num_orderings),
            estimators=estimators,
            num_batches=data.num_batches,
            versions={"python": python_version(), **{name: version(name) for name in _PACKAGES}},
            paper_table=paper_table,
        ).write(directory)
    if data.remaining() or not decides_alone(trainer):
        for logger in trainer.loggers:
            logger.log_hyperparams(dict(settings))
        with disconnecting(), ends_together(trainer), says_how_to_continue(data, trainer):
            try:
                trainer.test(module, datamodule=data, verbose=False)
            finally:
                module.board.stop_listening()
    if not trainer.is_global_zero:
        return None
    results = write_report(directory, patience=PATIENCE_SECONDS, show=show)
    publish(trainer.loggers, results, directory)
    if show:
        Console().print(f"Results are in {directory}", soft_wrap=True, markup=False)
    return results


def _claim(
    data: EvaluationData,
    plan: Plan,
    models: Mapping[str, object],
    directory: Path,
    settings: Mapping[str, Any],
) -> None:
    """Make the directory the home of all that scores depend on, and of nothing else.

    Where files are does not matter: texts and weights are known by their hashes.
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
        "token_sha256": data.text.sha256,
        "documents_sha256": data.text.documents_sha256,
        "num_bytes": data.text.num_scored_bytes,
        "models": identities,
    }
    claim_directory(directory, depends_on, settings)
    for name, identity in identities.items():
        if identity["weights_sha256"] is None and data.files.finished():
            raise ValueError(
                f"output_dir: {directory} has scores, and whether they are of this {name} cannot "
                "be told; choose another, or give the model an attribute `fingerprint`"
            )


def _describe_text(text: TokenSequences, order: Order) -> dict[str, Any]:
    return {
        "source": text.source,
        "tokenizer": text.tokenizer,
        "token_sha256": text.sha256,
        "text_sha256": text.text_sha256,
        "order": order,
        "num_sequences": len(text),
        "num_dropped": text.num_dropped,
        "length": text.length,
        "per_document": text.lengths is not None,
    }


def _remove_half_written(directory: Path) -> None:
    """Clear away what killed runs left half-written.

    Not in the directory itself: other ranks may be claiming it at this moment.
    """
    for folder in (SCORES_FOLDER, FIGURES_FOLDER):
        for leftover in (directory / folder).glob(f".*{UNFINISHED}"):
            leftover.unlink(missing_ok=True)
