"""Every experiment composes, keeps its values and instantiates; the paper's are the paper's."""

import functools
import inspect
import itertools
import shlex
from pathlib import Path

import hydra
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from tube_lightning.bounds import EstimatorSettings
from tube_lightning.checkpoints import Checkpoint, companion
from tube_lightning.data import CORPORA
from tube_lightning.evaluator import Plan
from tube_lightning.report.paper_tables import PAPER_TABLES

CONFIGS = Path(__file__).parent.parent / "configs"
EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "experiment").glob("*.yaml"))
TRAINING = [name for name in EXPERIMENTS if name.startswith("train_")]
EVALUATION = [name for name in EXPERIMENTS if name not in TRAINING]
SIZES = (4, 8, 16)
ZERO_SHOT = ("ptb", "wikitext2", "wikitext103", "lambada", "ag_news", "lm1b")
ZERO_SHOT += ("scientific_papers_arxiv", "scientific_papers_pubmed")

# From the paper: tables reproduction_banks and reproduction_estimator_hp, and its section on data.
NUM_ORDERINGS = {4: 24, 8: 64, 16: 128}
NFE = {4: [1, 2, 4], 8: [1, 2, 4, 8], 16: [1, 2, 4, 8, 16]}
LENGTH = {"owt": 1024, "lm1b": 128}
NUM_BATCHES, NUM_RESEEDS, ELBO_SEEDS = 100, 10, 15
PAPERS_SETTINGS = EstimatorSettings(cubo_beta=2.0, tvo_partitions=200, isvgb_pairs=2)
# BD3-LM's evaluation scripts: the batch sizes that "the eval batch size of the BD3-LM repo" means.
BATCH_SIZE = {"owt": 16, "lm1b": 128}


@functools.cache
def compose(script, *overrides):
    """A configuration, and the choices of its groups."""
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = hydra.compose(script, list(overrides), return_hydra_config=True)
    choices = dict(config.hydra.runtime.choices)
    OmegaConf.set_struct(config, False)
    del config.hydra
    return config, choices


def experiment(name):
    """An experiment as the last command of its header runs it."""
    script, overrides = commands(name)[-1]
    assert script == ("train" if name in TRAINING else "evaluate")
    assert overrides[0] == f"experiment={name}"
    return compose(script, *overrides)[0]


def header(name):
    lines = (CONFIGS / "experiment" / f"{name}.yaml").read_text().splitlines()
    return [line[2:] for line in itertools.takewhile(lambda line: line.startswith("#"), lines)]


def commands(name):
    """The commands of a header: the script and its arguments."""
    lines = [shlex.split(line) for line in header(name) if line.startswith("python ")]
    return [(words[1].removesuffix(".py"), words[2:]) for words in lines]


def asked(name):
    """What an experiment asks for, read without Hydra: the choices of groups, and the values."""
    own = OmegaConf.to_container(OmegaConf.load(CONFIGS / "experiment" / f"{name}.yaml"))
    choices, values = {}, OmegaConf.create()
    for entry in own.pop("defaults"):
        if isinstance(entry, str):
            parent_choices, parent_values = asked(entry)
            choices |= parent_choices
            values = OmegaConf.merge(values, parent_values)
        else:
            ((key, choice),) = entry.items()
            choices[key.removeprefix("override /")] = choice
    return choices, OmegaConf.to_container(OmegaConf.merge(values, own))


def leaves(node, path=()):
    if not isinstance(node, dict):
        return [(path, node)]
    return [leaf for key, value in node.items() for leaf in leaves(value, (*path, key))]


def test_the_experiments_are_there():
    tables = [f"{data}_l{size}" for data in LENGTH for size in SIZES]
    figures = [f"{figure}_{name}" for figure in ("psi_choice", "cubo_heatmap") for name in tables]
    zero_shot = [f"zeroshot_{name}" for name in ZERO_SHOT]
    demo = ["demo_l4", "demo_l8", "demo_l16", "demo_l4_paper", "demo_l16_exact"]
    assert sorted([*tables, *figures, *zero_shot, *demo]) == EVALUATION


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_it_gets_every_value_and_choice_that_it_asks_for(name):
    """Neither the script's own file nor the experiment it builds on has the last word."""
    choices, values = asked(name)
    script, overrides = commands(name)[-1]
    config, chosen = compose(script, *overrides)
    assert {group: chosen[group] for group in choices} == choices
    assert "output_dir" in values
    given = {word.partition("=")[0] for word in overrides}
    for path, value in leaves(values):
        if ".".join(path) not in given:
            assert OmegaConf.select(config, ".".join(path)) == value, path


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_commands_of_its_header_leave_nothing_open(name):
    lines = header(name)
    assert lines[0] == "@package _global_"
    assert any(line.startswith("cost") for line in lines)
    for script, overrides in commands(name):
        config, _ = compose(script, *overrides)
        OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


def test_no_two_write_to_one_directory():
    assert len({experiment(name).output_dir for name in EXPERIMENTS}) == len(EXPERIMENTS)


@pytest.mark.parametrize("name", EVALUATION)
def test_evaluations_instantiate(name):
    config = experiment(name)
    trainer = instantiate(config.trainer, accelerator="cpu", devices=1, logger=False)
    assert trainer.num_devices == 1
    assert instantiate(config.protocol).regimes(4)
    assert EstimatorSettings(**config.estimators) == PAPERS_SETTINGS
    make_blocks = instantiate(config.data.test)
    inspect.signature(make_blocks).bind(length=8, vocab_size=257, max_sequences=None)
    if not name.startswith("demo_"):
        assert config.data.test.name in CORPORA
    model = Checkpoint(**config.model)
    assert companion("arm", model, **config.arm) is not None
    has_tuned = name.startswith("psi_choice_owt") or config.model.checkpoint == "demo:bd3lm_l4"
    assert (companion("arm_ft", model, **config.arm_ft) is not None) == has_tuned


@pytest.mark.parametrize("name", TRAINING)
def test_trainings_instantiate(name):
    config = experiment(name)
    sizes = {"hidden_dim": 16, "n_blocks": 1, "n_heads": 2}
    module = instantiate(config.module, network={"config": sizes, "init_from": None})
    assert module.network.config.block_size == config.objective.block_size
    trainer = instantiate(config.trainer, accelerator="cpu", devices=1, logger=False)
    assert trainer.max_steps == config.trainer.max_steps > 0
    assert instantiate(config.datamodule).batch_size == config.batch_size
    if "lm1b" in name:  # appendix "LM1B training details"
        assert (config.batch_size, config.optimizer.learning_rate) == (512, 3e-4)
        assert trainer.max_steps == 150_000


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("data", LENGTH)
def test_the_papers_tables(data, size):
    config = experiment(f"{data}_l{size}")
    protocol = instantiate(config.protocol)
    assert protocol.num_orderings == NUM_ORDERINGS[size]
    assert [regime.steps for regime in protocol.regimes(size)] == [*NFE[size], None]
    assert protocol.bank
    assert (protocol.num_reseeds, protocol.elbo_seeds) == (NUM_RESEEDS, ELBO_SEEDS)
    assert Plan(protocol, size).exact == (size <= 8)  # what the paper could not compute
    assert (config.length, config.batch_size) == (LENGTH[data], BATCH_SIZE[data])
    assert config.num_batches == NUM_BATCHES
    blocks_of_4 = config.num_batches * config.batch_size * config.length // 4
    assert blocks_of_4 == pytest.approx(4e5, rel=0.05)  # "roughly 4 x 10^5" in the paper
    assert config.paper_table == data


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("data", LENGTH)
def test_headers_tell_the_papers_numbers(data, size):
    table = PAPER_TABLES[data]
    text = " ".join(header(f"{data}_l{size}"))
    for regime, row in table.rows[size].items():
        for name in {"tube_split", "elbo_k", "elbo"} & row.cells.keys():
            assert f"{row.cells[name].ppl:.2f}" in text, regime
    assert f"ARM {table.arm:.2f}" in text


@pytest.mark.parametrize("size", SIZES)
def test_models_of_the_paper(size):
    owt, lm1b = (experiment(f"{data}_l{size}") for data in LENGTH)
    assert owt.model.checkpoint == f"kuleshov-group/bd3lm-owt-block_size{size}"
    assert owt.arm.checkpoint == "kuleshov-group/ar-noeos-owt"
    for model, training in ((lm1b.model, f"lm1b_bd3lm_l{size}"), (lm1b.arm, "lm1b_arm")):
        trained = experiment(f"train_{training}").output_dir
        assert model.checkpoint == f"{trained}/model"
    choice = experiment(f"psi_choice_owt_l{size}")
    tuned = experiment(f"train_owt_arm_ft_l{size}")
    assert choice.arm_ft.checkpoint == f"{tuned.output_dir}/model"
    (samples,) = [w for script, w in commands(f"psi_choice_owt_l{size}") if script == "sample"]
    assert f"output={tuned.data.train.paths}" in samples
    assert f"checkpoint={owt.model.checkpoint}" in samples


@pytest.mark.parametrize("name", [n for n in EVALUATION if n.startswith("zeroshot_")])
def test_zero_shot_text_is_whole_and_has_no_ends_of_documents(name):
    config = experiment(name)
    assert (config.length, config.batch_size, config.num_batches) == (1024, 16, None)
    assert (config.protocol.name, config.paper_table) == ("default", None)
    corpus = CORPORA[config.data.test.name]
    assert not config.data.test.get("append_eos", corpus.append_eos)
