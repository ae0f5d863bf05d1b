"""Bracket the likelihood of a block diffusion model on a text: evaluate.py."""

from hydra.core.config_store import ConfigStore
from hydra.utils import instantiate

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.programs.composed import Config, plain_values, run_composed

RECORDED = ("model", "arm", "arm_ft", "protocol", "estimators", "batch_size", "num_batches")
ConfigStore.instance().store("estimators", {"estimators": dict(EstimatorSettings())})


def main(words: list[str]) -> None:
    """Evaluate as the words of the command line say."""
    run_composed(_evaluate, "evaluate", words)


def _evaluate(config: Config) -> None:
    """Instantiate the parts and evaluate."""
    from tube_lightning.checkpoints import Checkpoint, companion  # slow to import: not for --help
    from tube_lightning.cluster import check_processes
    from tube_lightning.machine import use_granted_threads
    from tube_lightning.pipeline import errors_in_a_line, quiet_lightning, run_evaluation

    values = plain_values(config)
    settings = {key: values[key] for key in RECORDED} | {
        "data": {**values["data"]["test"], "order": values["data"]["order"]}
    }
    with quiet_lightning(), errors_in_a_line():
        model = Checkpoint(**values["model"])
        trainer = instantiate(config.trainer)
        check_processes(trainer)
        use_granted_threads(trainer.num_devices)
        run_evaluation(
            model=model,
            arm=companion("arm", model, **values["arm"]),
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
            settings=settings,
        )
