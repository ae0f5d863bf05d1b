"""Bracket the likelihood of a block diffusion model on a text: evaluate.py."""

from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.programs.composed import Config, plain_values, run_composed

RECORDED = ("model", "arm", "arm_ft", "protocol", "estimators", "batch_size", "num_batches")


def main(words: list[str]) -> None:
    """Evaluate as the words of the command line say."""
    run_composed(_evaluate, "evaluate", words, store_estimators())


def store_estimators() -> dict[str, Any]:
    """Put the settings of the estimators that are registered now into Hydra's store."""
    settings = {"estimators": dict(EstimatorSettings())}
    ConfigStore.instance().store("estimators", settings)
    return settings


def _evaluate(config: Config) -> None:
    """Instantiate the parts and evaluate."""
    from tube_lightning import pipeline  # slow to import: not for mistyped keys
    from tube_lightning.checkpoints import Checkpoint, companion
    from tube_lightning.cluster import check_processes
    from tube_lightning.machine import use_granted_threads

    values = plain_values(config)
    settings = {key: values[key] for key in RECORDED} | {
        "data": {**values["data"]["test"], "order": values["data"]["order"]}
    }
    with pipeline.quiet_lightning(), pipeline.errors_in_a_line():
        model = Checkpoint(**values["model"])
        if config.output_dir is None:
            names, path = HydraConfig.get().runtime.choices, values["data"].get("path")
            config.output_dir = pipeline.default_directory(
                model, names["data"], path, names["protocol"]
            )
        trainer = instantiate(config.trainer)
        check_processes(trainer)
        use_granted_threads(trainer.num_devices)
        pipeline.run_evaluation(
            model=model,
            arm=companion("arm", model, **values["arm"]),
            arm_tokenizer=config.arm.tokenizer,
            arm_length=config.arm.length,
            arm_ft=companion("arm_ft", model, **values["arm_ft"]),
            data=instantiate(config.data.test),
            protocol=instantiate(config.protocol),
            estimators=EstimatorSettings(**values["estimators"]),
            trainer=trainer,
            output_dir=config.output_dir,
            batch_size=config.batch_size,
            length=config.length,
            num_batches=config.num_batches,
            order=config.data.order,
            paper_table=config.paper_table,
            token_budget=config.token_budget,
            settings=settings,
        )
