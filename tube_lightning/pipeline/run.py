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
from tube_lightning.checkpoints import (
    Checkpoint,
    load_arm,
    load_block_model_on,
    load_companion,
    read_sizes,
    say,
    suggest_arms,
)
from tube_lightning.checks import check_whole_number
from tube_lightning.cluster import disconnecting
from tube_lightning.data import AtMost, Order, TokenSequences, check_order
from tube_lightning.evaluator import EvaluationData, LikelihoodEvaluation, Plan
from tube_lightning.networks import AutoregressiveModel, BlockModel, goes_first, size_of_blocks
from tube_lightning.pipeline.claim import claim, most_sequences
from tube_lightning.pipeline.compatibility import check_models
from tube_lightning.pipeline.other_tokens import OtherARM, read_in_other_tokens, share_text
from tube_lightning.pipeline.processes import (
    connect_early,
    decides_alone,
    ends_together,
    says_how_to_continue,
)
from tube_lightning.pipeline.publishing import publish
from tube_lightning.protocol import Protocol
from tube_lightning.report import Results, check_paper_table, write_report
from tube_lightning.rundir import (
    FIGURES_FOLDER,
    SCORES_FOLDER,
    UNFINISHED,
    RunRecord,
    recorded_budgets,
)
from tube_lightning.scores import ARM, ARM_FT, ScoreFiles

PATIENCE_SECONDS = 30.0
"""How long parts that other machines wrote may take to appear on a network file system."""
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
    token_budget: int | None,
    settings: Mapping[str, Any],
    arm_tokenizer: str | None = None,
    arm_length: int | None = None,
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
    if token_budget is not None:
        check_whole_number("token_budget", token_budget, least=1)
    check_order(order)
    known = read_sizes(model)
    if length is None and known.length is not None:
        length = AtMost(known.length)
    if known.vocab_size is None:
        raise ValueError(f"{model}: its family does not tell its vocab_size, which texts must fit")
    if length is None:
        raise ValueError(f"length: {model} does not tell it: give length=...")
    if known.length is not None and length > known.length:
        raise ValueError(f"length: expected at most {known.length}, the model's, got {length}")
    if paper_table is not None:
        check_paper_table(paper_table)
    directory = Path(output_dir).expanduser()
    text = data(
        length=length,
        vocab_size=known.vocab_size,
        max_sequences=most_sequences(num_batches, batch_size, order, directory),
    )
    other = None
    if arm is not None and arm_tokenizer is not None:
        other = read_in_other_tokens(
            load_arm(arm), str(arm), arm_tokenizer, data, length=arm_length or length, text=text
        )
        arm = None
    arms = {name: c for name, c in ((ARM, arm), (ARM_FT, arm_ft)) if c is not None}
    if not arms and other is None and trainer.is_global_zero and (advice := suggest_arms(model)):
        say(advice)
    if model.tensor_parallel > 1:
        connect_early(trainer)
    network = load_block_model_on(trainer.strategy.root_device, model)
    results = score_and_report(
        network,
        {name: load_companion(checkpoint, network) for name, checkpoint in arms.items()},
        text,
        protocol=protocol,
        estimators=estimators,
        trainer=trainer,
        directory=directory,
        batch_size=batch_size,
        num_batches=num_batches,
        order=order,
        settings={**settings, "length": text.length},
        checkpoints={"model": str(model), **{name: str(c) for name, c in arms.items()}},
        paper_table=paper_table,
        token_budget=token_budget,
        processes_a_batch=model.tensor_parallel,
        other=other,
    )
    if results is not None:
        Console().print(f"Results are in {directory}", soft_wrap=True, markup=False)
    return results


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
    token_budget: int | None = None,
    other: OtherARM | None = None,
    show: bool = True,
    processes_a_batch: int = 1,
) -> Results | None:
    """Score the batches that are not on disk, and report on all of them.

    ``num_batches`` are the first ones in an order of the sequences. ``arms`` are autoregressive
    models by name, arm and arm_ft; ``other`` is one of another tokenizer. ``settings`` and
    ``checkpoints``, where the models are from, are for the record. ``token_budget`` are the tokens
    in a network at once: by default those on record, or as many as fit. Groups of
    ``processes_a_batch`` neighbouring ranks hold one copy of the model.
    """
    check_models(network, arms, text)
    files = ScoreFiles(directory / SCORES_FOLDER)
    block_size = size_of_blocks(network, text.length)
    data = EvaluationData(
        text,
        batch_size=batch_size,
        block_size=block_size,
        files=files,
        order=order,
        num_batches=num_batches,
        cut=getattr(network, "own_length", False),
        processes_a_batch=processes_a_batch,
    )
    plan = Plan(protocol, block_size, goes_first(network), data.most_scored)
    module = LikelihoodEvaluation(
        network,
        arms,
        plan,
        files,
        estimators,
        token_budget=token_budget,
        directory=directory,
        processes_a_batch=processes_a_batch,
    )
    claim(data, plan, {"model": network, **arms}, directory, settings)
    if trainer.is_global_zero:
        _remove_half_written(directory)
        RunRecord(
            config=dict(settings),
            data=_describe_text(text, order),
            model={"checkpoint": checkpoints["model"], "block_size": block_size},
            arms={name: {"checkpoint": checkpoints[name]} for name in arms},
            protocol=replace(protocol, num_orderings=plan.num_orderings),
            estimators=estimators,
            num_batches=data.num_batches,
            versions={"python": python_version(), **{name: version(name) for name in _PACKAGES}},
            other_arm=None if other is None else other.describe(),
            paper_table=paper_table,
            token_budgets=recorded_budgets(directory),
        ).write(directory)
    if data.remaining() or not decides_alone(trainer):
        for logger in trainer.loggers:
            logger.log_hyperparams(dict(settings))
        with disconnecting(), ends_together(trainer), says_how_to_continue(data, trainer):
            trainer.test(module, datamodule=data, verbose=False)
    if not trainer.is_global_zero:
        return None
    if other is not None:
        share_text(data, other, directory, trainer.strategy.root_device, show=show)
    results = write_report(directory, patience=PATIENCE_SECONDS, show=show)
    publish(trainer.loggers, results, directory)
    return results


def _describe_text(text: TokenSequences, order: Order) -> dict[str, Any]:
    return {
        "source": text.source,
        "tokenizer": text.tokenizer,
        "token_sha256": text.sha256,
        "text_sha256": text.text_sha256,
        "order": order,
        "num_sequences": len(text),
        "num_dropped": text.num_dropped,
        "text_bytes": text.text_bytes,
        "text_words": text.text_words,
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
