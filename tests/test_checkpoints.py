"""Published folders and training checkpoints: what is read, and what is refused and how."""

import json
import os
import shutil
from pathlib import Path

import omegaconf
import pytest
import torch
from safetensors.torch import load_file, save_file

from tube_lightning.checkpoints import (
    load_arm,
    load_block_model,
    read_checkpoint,
    read_sizes,
    save_checkpoint,
)
from tube_lightning.networks import check_vocabularies
from tube_lightning.networks.arm import DiTARM
from tube_lightning.networks.block_diffusion import BlockDiffusion
from tube_lightning.networks.dit import DiT, DiTConfig
from tube_lightning.scoring import conditional_table

FIXTURES = Path(__file__).parent / "fixtures"
BLOCK4 = FIXTURES / "bd3lm_block4"
BUFFERS = {"backbone.rotary_emb.inv_freq", "sampling_eps_min", "sampling_eps_max"}
SIZES = {"vocab_size": 11, "model_length": 8, "hidden_dim": 8, "cond_dim": 4}
SIZES |= {"n_blocks": 2, "n_heads": 2}
BLOCK = DiTConfig(block_size=4, **SIZES)
MDLM = DiTConfig(block_size=8, cross_attn=False, **SIZES)
AR = DiTConfig(block_size=1, cross_attn=False, adaln=False, causal=True, **SIZES)


def random_network(config, seed=0):
    network = DiT(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(generator=generator)
    return network


def hyper_parameters(**changes):
    """The part of the original's configuration that matters, as OmegaConf pickles it."""
    config = omegaconf.OmegaConf.create(
        {
            "block_size": 4,
            "model": {
                "hidden_size": 8,
                "length": 8,
                "n_blocks": 2,
                "n_heads": 2,
                "cond_dim": 4,
                "dropout": 0.2,
                "adaln": False,
            },
            "algo": {"name": "bd3lm", "parameterization": "subs", "cross_attn": True},
            "data": {"tokenizer_name_or_path": "gpt2"},
            "loader": {"num_workers": "${eval:1+1}"},
        }
    )
    for name, value in changes.items():
        path = name.replace("__", ".")
        if value is None:
            parent, _, key = path.rpartition(".")
            del (omegaconf.OmegaConf.select(config, parent) if parent else config)[key]
        else:
            omegaconf.OmegaConf.update(config, path, value)
    return {"config": config, "tokenizer": torch.nn.Identity()}


def state_dict_of(network, prefix="backbone."):
    state = {"sampling_eps_min": torch.tensor(0.1)} if network.config.cross_attn else {}
    for name, tensor in network.state_dict().items():
        if name == "blocks.0.norm1.weight":
            state[f"{prefix}rotary_emb.inv_freq"] = torch.zeros(2)
        state[prefix + name] = tensor
    return state


def training_file(folder, network, ema=None, **others):
    content = {"state_dict": state_dict_of(network), "global_step": 7} | others
    if ema is not None:
        averages = [p.detach() for p in ema.parameters()] if isinstance(ema, DiT) else ema
        content["ema"] = {"decay": 0.9999, "num_updates": 3, "shadow_params": averages}
    torch.save(content, folder / "last.ckpt")
    return folder / "last.ckpt"


def changed_folder(tmp_path, source=BLOCK4, tensors=None, **fields):
    """Copy a published folder; a field of None, or a tensor of None, is left out."""
    folder = tmp_path / "model"
    folder.mkdir()
    config = json.loads((source / "config.json").read_text()) | fields
    config = {name: value for name, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    state = load_file(source / "model.safetensors") | (tensors or {})
    state = {name: tensor for name, tensor in state.items() if tensor is not None}
    save_file(state, folder / "model.safetensors")
    return folder


def assert_same(network, other):
    assert network.config == other.config
    assert_same_tensors(network.state_dict(), other.state_dict())


def assert_same_tensors(state, expected):
    assert state.keys() == expected.keys()
    for name, tensor in state.items():
        assert torch.equal(tensor, expected[name]), name


def published_tensors(folder):
    state = load_file(folder / "model.safetensors")
    return {name.removeprefix("backbone."): t for name, t in state.items() if name not in BUFFERS}


# ----- published folders


@pytest.mark.parametrize("name", ["bd3lm_block4", "bd3lm_block8", "mdlm", "ar"])
def test_published_folders_are_read_as_they_are(name):
    network = read_checkpoint(FIXTURES / name)
    assert_same_tensors(network.state_dict(), published_tensors(FIXTURES / name))
    config = json.loads((FIXTURES / name / "config.json").read_text())
    expected = {"mask_id": config["vocab_size"] - 1} | config
    for field, value in vars(network.config).items():
        assert expected[field] == value
    assert all(p.requires_grad and p.dtype == torch.float32 for p in network.parameters())


@pytest.mark.parametrize("name", ["bd3lm_block4", "mdlm", "ar"])
def test_saved_networks_have_the_published_layout(tmp_path, name):
    network = read_checkpoint(FIXTURES / name)
    save_checkpoint(tmp_path / "a" / "b", network)
    assert_same(read_checkpoint(tmp_path / "a" / "b"), network)
    assert sorted(os.listdir(tmp_path / "a" / "b")) == ["config.json", "model.safetensors"]
    config = json.loads((tmp_path / "a" / "b" / "config.json").read_text())
    expected = json.loads((FIXTURES / name / "config.json").read_text())
    assert config == {k: v for k, v in expected.items() if k != "transformers_version"}
    assert_same_tensors(
        load_file(tmp_path / "a" / "b" / "model.safetensors"),
        load_file(FIXTURES / name / "model.safetensors"),
    )


def test_saving_again_replaces_the_files(tmp_path):
    for seed in (0, 1):
        save_checkpoint(tmp_path, random_network(BLOCK, seed))
    assert_same(read_checkpoint(tmp_path), random_network(BLOCK, 1))


def test_a_failed_save_leaves_the_old_files(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, random_network(BLOCK))

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr("tube_lightning.checkpoints.published.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        save_checkpoint(tmp_path, random_network(BLOCK, 1))
    assert_same(read_checkpoint(tmp_path), random_network(BLOCK))
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_saving_in_half_precision_rounds_the_weights_and_nothing_else(tmp_path, dtype):
    network = random_network(BLOCK)
    save_checkpoint(tmp_path, network, dtype)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["dtype"] == str(dtype).split(".")[1]
    stored = load_file(tmp_path / "model.safetensors")
    for name, tensor in stored.items():
        assert tensor.dtype == (torch.float32 if name in BUFFERS else dtype), name
    read = read_checkpoint(tmp_path).state_dict()
    for name, weight in network.state_dict().items():
        assert torch.equal(read[name], weight.to(dtype).float()), name


def test_half_precision_scores_are_close_and_not_the_same(tmp_path):
    network = random_network(BLOCK)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(0.3)
    save_checkpoint(tmp_path / "whole", network)
    save_checkpoint(tmp_path / "half", network, torch.float16)
    tokens = torch.arange(16).view(2, 8) % 10
    whole, half = (
        conditional_table(load_block_model(tmp_path / name), tokens) for name in ("whole", "half")
    )
    difference = (whole - half).abs().max()
    assert 0 < difference < 2e-3


def test_weights_beyond_half_precision_are_refused_before_anything_is_written(tmp_path):
    network = random_network(BLOCK)
    with torch.no_grad():
        network.output_layer.linear.bias[3] = 1e5
    with pytest.raises(ValueError, match=r"backbone\.output_layer\.linear\.bias: expected finite"):
        save_checkpoint(tmp_path / "model", network, torch.float16)
    assert not (tmp_path / "model").exists()
    save_checkpoint(tmp_path / "model", network, torch.bfloat16)


def test_weights_are_stored_in_a_floating_type(tmp_path):
    with pytest.raises(ValueError, match=r"dtype: expected one of torch\.float32, .*torch\.int8"):
        save_checkpoint(tmp_path / "model", random_network(BLOCK), torch.int8)


def test_half_precision_is_read_as_fp32(tmp_path):
    state = load_file(BLOCK4 / "model.safetensors")
    folder = changed_folder(tmp_path, tensors={n: t.bfloat16() for n, t in state.items()})
    embedding = read_checkpoint(folder).vocab_embed.embedding
    assert embedding.dtype == torch.float32
    expected = state["backbone.vocab_embed.embedding"].bfloat16().float()
    assert torch.equal(embedding.detach(), expected)


def test_the_rotary_buffer_is_never_read(tmp_path):
    zeros = {"backbone.rotary_emb.inv_freq": torch.zeros(6)}
    network = read_checkpoint(changed_folder(tmp_path, tensors=zeros))
    assert_same(network, read_checkpoint(BLOCK4))


def test_older_configurations_of_mdlm_have_fewer_fields(tmp_path):
    gone = dict.fromkeys(("block_size", "causal", "cross_attn", "adaln"))
    folder = changed_folder(tmp_path, FIXTURES / "mdlm", model_type="mdlm", **gone)
    assert_same(read_checkpoint(folder), read_checkpoint(FIXTURES / "mdlm"))


def test_a_full_sequence_model_has_one_block_whatever_it_says(tmp_path):
    folder = changed_folder(tmp_path, FIXTURES / "mdlm", block_size=4)
    assert read_checkpoint(folder).config.block_size == 24


def test_block_models_and_arms():
    model = load_block_model(BLOCK4, block_size=4, n_heads=4, model_length=24)
    assert isinstance(model, BlockDiffusion)
    assert (model.block_size, model.mask_id, model.vocab_size, model.max_length) == (4, 40, 41, 24)
    assert isinstance(load_arm(FIXTURES / "ar"), DiTARM)
    assert load_block_model(FIXTURES / "mdlm").block_size == 24


def test_the_trunk_takes_the_dtype():
    model = load_block_model(BLOCK4, dtype=torch.bfloat16)
    assert model.trunk.layers[0].qkv.dtype == torch.bfloat16
    assert model.trunk.embedding.dtype == torch.float32


# ----- training checkpoints


def test_the_golden_training_checkpoint():
    network = read_checkpoint(BLOCK4 / "last.ckpt")
    assert_same(network, read_checkpoint(BLOCK4))
    raw = read_checkpoint(BLOCK4 / "last.ckpt", weights="raw")
    assert raw.config == network.config
    for name, tensor in raw.state_dict().items():
        assert not torch.equal(tensor, network.state_dict()[name]), name


@pytest.mark.parametrize("prefix", ["backbone.", "backbone._orig_mod.", "_orig_mod.backbone."])
def test_names_of_compiled_models(tmp_path, prefix):
    network, average = random_network(BLOCK), random_network(BLOCK, 1)
    path = training_file(
        tmp_path,
        network,
        average,
        state_dict=state_dict_of(network, prefix),
        hyper_parameters=hyper_parameters(),
    )
    found = read_checkpoint(path)
    assert_same_tensors(found.state_dict(), average.state_dict())
    assert found.config.dropout == 0.2
    assert_same_tensors(read_checkpoint(path, weights="raw").state_dict(), network.state_dict())


def test_averages_are_in_the_order_of_the_state_dict(tmp_path):
    """Not in the order of our own modules: here the file has them backwards."""
    network, average = random_network(BLOCK), random_network(BLOCK, 1)
    state = state_dict_of(network)
    shadow = [p.detach() for p in reversed(list(average.parameters()))]
    path = training_file(
        tmp_path,
        network,
        state_dict=dict(reversed(state.items())),
        ema=shadow,
        hyper_parameters=hyper_parameters(),
    )
    assert_same_tensors(read_checkpoint(path).state_dict(), average.state_dict())


def test_parameters_that_shared_memory_do_not_any_more(tmp_path):
    network = random_network(BLOCK)
    sizes = [parameter.numel() for parameter in network.parameters()]
    flat = torch.cat([parameter.detach().flatten() for parameter in network.parameters()])
    pieces = zip(flat.split(sizes), network.parameters(), strict=True)
    shadow = [piece.view_as(parameter) for piece, parameter in pieces]
    path = training_file(
        tmp_path,
        random_network(BLOCK, 1),
        ema=shadow,
        hyper_parameters=hyper_parameters(),
    )
    found = read_checkpoint(path)
    assert_same_tensors(found.state_dict(), network.state_dict())
    assert len({p.untyped_storage().data_ptr() for p in found.parameters()}) == len(sizes)


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (BLOCK, {}),
        (BLOCK, {"algo__cross_attn": None}),
        (BLOCK, {"model__length": "${data.length}", "data__length": 8}),
        (BLOCK, {"model__hidden_size": None, "model__cond_dim": None, "model__n_blocks": None}),
        (MDLM, {"algo__name": "mdlm", "algo__cross_attn": False, "block_size": "${model.length}"}),
        (MDLM, {"algo__name": "mdlm", "algo__cross_attn": None, "block_size": None}),
        (MDLM, {"algo": None, "block_size": None, "parameterization": "subs"}),
        (AR, {"algo__name": "ar", "algo__parameterization": "ar", "algo__cross_attn": False}),
        (AR, {"algo": None, "block_size": None, "parameterization": "ar", "backbone": "ar"}),
        (AR, {"algo": None, "block_size": None}),
    ],
)
def test_the_variant_is_found(tmp_path, config, changes):
    """By the options of the code bases of BD3-LM (``algo``) and of MDLM (at the top)."""
    path = training_file(
        tmp_path, random_network(config), hyper_parameters=hyper_parameters(**changes)
    )
    found = read_checkpoint(path, weights="raw").config
    for name in ("block_size", "cross_attn", "causal", "adaln", "model_length", "n_heads"):
        if not (name == "block_size" and config.causal):
            assert getattr(found, name) == getattr(config, name), name


def test_an_ar_model_may_have_modulation(tmp_path):
    config = DiTConfig(block_size=1, cross_attn=False, causal=True, **SIZES)
    changes = {"algo__name": "ar", "algo__parameterization": "ar", "algo__cross_attn": False}
    path = training_file(
        tmp_path, random_network(config), hyper_parameters=hyper_parameters(**changes)
    )
    found = read_checkpoint(path, weights="raw").config
    assert found.causal
    assert found.adaln


def test_sizes_that_are_not_in_the_file_are_asked_for(tmp_path):
    path = training_file(tmp_path, random_network(BLOCK), random_network(BLOCK, 1))
    expected = r"last\.ckpt: .* give model_length=\.\.\., block_size=\.\.\., n_heads=\.\.\."
    with pytest.raises(ValueError, match=expected):
        load_block_model(path)
    with pytest.raises(ValueError, match=r"it does not tell block_size: give block_size=\.\.\.$"):
        load_block_model(path, n_heads=2, model_length=8)
    network = read_checkpoint(path, n_heads=2, block_size=4, model_length=8)
    assert network.config == DiTConfig(block_size=4, **SIZES)
    assert not read_checkpoint(path, n_heads=2, block_size=8, model_length=8).config.cross_attn


def test_an_arm_needs_no_block_size(tmp_path):
    path = training_file(tmp_path, random_network(AR), random_network(AR, 1))
    with pytest.raises(ValueError, match=r"it does not tell model_length, n_heads: give"):
        load_arm(path)
    assert isinstance(load_arm(path, n_heads=2, model_length=8), DiTARM)


def test_a_malicious_training_checkpoint_is_loaded_without_harm(tmp_path):
    sentinel = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {sentinel}",)

    class EvilState:
        def __reduce__(self):
            return dict, (), {"x": Evil()}, iter([Evil()]), iter([(1, Evil())])

    network = random_network(BLOCK)
    others = {"callbacks": [Evil(), EvilState()], "optimizer_states": {"a": Evil()}}
    others["hyper_parameters"] = hyper_parameters() | {"tokenizer": EvilState(), "x": Evil()}
    path = training_file(tmp_path, network, network, **others)
    assert_same_tensors(read_checkpoint(path).state_dict(), network.state_dict())
    others["hyper_parameters"] = {"config": Evil()}
    path = training_file(tmp_path, network, network, **others)
    with pytest.raises(ValueError, match="give model_length"):
        read_checkpoint(path)
    path = training_file(tmp_path, network, state_dict=Evil())
    with pytest.raises(ValueError, match=r"last\.ckpt: expected .* a state_dict, found none"):
        read_checkpoint(path)
    path = training_file(tmp_path, network, state_dict={"backbone.x": Evil()})
    with pytest.raises(ValueError, match=r"backbone\.x: .* got <stand-in for posix\.system>"):
        read_checkpoint(path)
    assert not sentinel.exists()
    torch.load(path, weights_only=False)  # the control
    assert sentinel.exists()


# ----- what is refused, and how


def refuses(match, load, *args, error=ValueError, **kwargs):
    with pytest.raises(error, match=match) as caught:
        load(*args, **kwargs)
    return str(caught.value)


def test_tensors_that_do_not_fit_are_listed_by_name(tmp_path):
    folder = changed_folder(
        tmp_path,
        tensors={
            "backbone.blocks.1.norm1.weight": None,
            "backbone.blocks.2.norm1.weight": torch.ones(48),
            "backbone.output_layer.linear.bias": torch.ones(40),
            "teacher": torch.ones(1, 2),
        },
    )
    message = refuses("model: the tensors are not those of DiTConfig", read_checkpoint, folder)
    assert message.splitlines()[1:] == [
        "  missing backbone.blocks.1.norm1.weight [48]",
        "  unexpected backbone.blocks.2.norm1.weight [48]",
        "  unexpected teacher [1, 2]",
        "  backbone.output_layer.linear.bias: expected [41], got [40]",
    ]


def test_a_long_list_is_cut(tmp_path):
    folder = changed_folder(tmp_path, n_blocks=4)
    message = refuses("tensors", read_checkpoint, folder)
    assert len(message.splitlines()) == 12
    assert message.endswith("and 10 more")


def test_missing_tensors_of_a_training_checkpoint(tmp_path):
    network = random_network(BLOCK)
    state = state_dict_of(network)
    state = {name: tensor for name, tensor in state.items() if ".blocks.1." not in name}
    path = training_file(tmp_path, network, state_dict=state, hyper_parameters=hyper_parameters())
    match = r"missing backbone\.blocks\.1\.norm1\.weight \[8\]"
    refuses(match, read_checkpoint, path, weights="raw")


def test_lost_modulation_of_a_diffusion_model_is_missing(tmp_path):
    network = random_network(AR)  # which has none
    path = training_file(tmp_path, network, hyper_parameters=hyper_parameters())
    match = r"missing backbone\.sigma_map\.mlp\.0\.weight"
    refuses(match, read_checkpoint, path, weights="raw")


def test_averages_must_be_there_and_as_many(tmp_path):
    network = random_network(BLOCK)
    path = training_file(tmp_path, network, hyper_parameters=hyper_parameters())
    refuses(r"last\.ckpt: it has no EMA weights; weights='raw'", read_checkpoint, path)
    path = training_file(
        tmp_path,
        network,
        ema=[torch.ones(1)] * 5,
        hyper_parameters=hyper_parameters(),
    )
    refuses("one EMA tensor for each of 30 parameters, got 5", read_checkpoint, path)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"algo__time_conditioning": True}, "time_conditioning: expected false, got true"),
        ({"time_conditioning": True}, "time_conditioning: expected false, got true"),
        ({"algo__parameterization": "sedd"}, "parameterization: expected subs or ar, got 'sedd'"),
        (
            {"data__tokenizer_name_or_path": "bert-base-uncased"},
            r"its own mask token.*give mask_id=\.\.\. \(103 for bert-base-uncased\)",
        ),
        ({"block_size": "${eval:2*2}"}, "it does not tell block_size"),
        ({"model__n_heads": "${model.n_heads}"}, "it does not tell n_heads"),
        ({"model__n_heads": 3}, r"last\.ckpt: n_heads: expected to cut hidden_dim=8"),
        ({"model__n_heads": 0}, "n_heads: expected a positive integer, got 0"),
        ({"algo__cross_attn": "yes"}, "cross_attn: expected true or false, got 'yes'"),
    ],
)
def test_options_that_are_not_supported(tmp_path, changes, match):
    network = random_network(BLOCK)
    path = training_file(tmp_path, network, hyper_parameters=hyper_parameters(**changes))
    refuses(match, read_checkpoint, path, weights="raw")


def test_a_mask_token_of_the_tokenizers_own_can_be_given_and_is_kept(tmp_path):
    """LM1B models under bert-base-uncased: no token is added for the mask."""
    network = random_network(BLOCK)
    changes = {"data__tokenizer_name_or_path": "bert-base-uncased"}
    path = training_file(tmp_path, network, hyper_parameters=hyper_parameters(**changes))
    read = read_checkpoint(path, weights="raw", mask_id=3)
    assert read.config.mask_id == 3
    assert read.fold().head[1][3] == -torch.inf
    assert read.fold().head[1][-1].isfinite()
    save_checkpoint(tmp_path / "saved", read)
    assert read_checkpoint(tmp_path / "saved").config.mask_id == 3
    assert read_checkpoint(tmp_path / "saved", mask_id=3).config.mask_id == 3
    refuses("mask_id: expected 3 .*got 4", read_checkpoint, tmp_path / "saved", mask_id=4)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"time_conditioning": True}, "model: time_conditioning: expected false, got true"),
        ({"hidden_dim": None}, r"model: the tensors are not those of .*hidden_dim=768"),
        ({"vocab_size": None}, "it does not tell vocab_size"),
        ({"n_heads": None}, r"it does not tell n_heads: give n_heads=\.\.\."),
        ({"block_size": "4"}, "block_size: expected a positive integer, got '4'"),
        ({"n_blocks": -1}, "n_blocks: expected a positive integer, got -1"),
        ({"model_type": "gpt2"}, "expected model_type bd3lm or mdlm .* got 'gpt2' .load_arm"),
        ({"model_type": None}, "expected model_type bd3lm or mdlm .* got None"),
    ],
)
def test_configurations_that_are_not_supported(tmp_path, fields, match):
    refuses(match, load_block_model, changed_folder(tmp_path, **fields))


@pytest.mark.parametrize("source", [BLOCK4, BLOCK4 / "last.ckpt"])
def test_other_sizes_than_the_checkpoints_own(source):
    match = r"block_size: expected 4 \(its own\), got 8"
    refuses(match, load_block_model, source, block_size=8)
    match = r"n_heads: expected 4 \(its own\), got 8"
    refuses(match, load_block_model, source, n_heads=8)
    match = r"block_size: expected 24 \(its own\), got 4"
    refuses(match, load_block_model, FIXTURES / "mdlm", block_size=4)


def test_an_arm_is_known_before_its_weights_are_read():
    match = r"got an autoregressive one: give it as arm\.checkpoint .* model as model\.check"
    refuses(match, read_sizes, FIXTURES / "ar")


def test_a_causal_model_of_transformers_is_no_block_model(tmp_path):
    kind = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(kind))
    match = r"autoregressive one of transformers \(LlamaForCausalLM\): give it as arm\.checkpoint"
    for ask in (read_sizes, load_block_model):
        refuses(match, ask, tmp_path)


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (
            ["step_1/config.json", "step_2/config.json"],
            "give the folder of .*step_2",
        ),
        (["a.ckpt", "b.ckpt"], r"give the training checkpoint itself: .*b\.ckpt"),
        (["model.safetensors"], r"copy the config\.json that belongs to them"),
        ([f"{number}.txt" for number in range(9)], r"found 0\.txt, .*, 4\.txt and 4 more$"),
    ],
)
def test_a_folder_without_a_model_says_what_to_give(tmp_path, names, advice):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(FileNotFoundError, match=advice):
        load_block_model(tmp_path)


def test_the_directory_of_an_evaluation_is_no_model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"layout_of_scores": 4}))
    refuses("got the directory of an evaluation", load_block_model, tmp_path)


def test_the_wrong_kind_of_model():
    match = r"ar: expected a diffusion model, got an autoregressive one: give it as arm\.checkpoint"
    refuses(match, load_block_model, FIXTURES / "ar")
    match = r"got a diffusion model with blocks of 4: give it as model\.checkpoint"
    refuses(match, load_arm, BLOCK4)
    refuses(match, load_arm, BLOCK4 / "last.ckpt")


def test_other_weights():
    refuses(
        "weights: expected 'ema' or 'raw', got 'x'",
        read_checkpoint,
        BLOCK4 / "last.ckpt",
        weights="x",
    )
    refuses(
        "weights: expected 'ema', got 'raw': .* has no others",
        read_checkpoint,
        BLOCK4,
        weights="raw",
    )


def test_files_that_are_no_checkpoints(tmp_path):
    path = tmp_path / "a.ckpt"
    path.write_text("hello")
    refuses(r"a\.ckpt: expected a checkpoint in torch's zip format", load_block_model, path)
    torch.save(torch.ones(2), path)
    refuses(r"a\.ckpt: expected a training checkpoint with a state_dict", load_arm, path)
    torch.save({"state_dict": {"conv.weight": torch.ones(2)}}, path)
    message = refuses(r"a\.ckpt: expected the network of BD3-LM", load_arm, path)
    assert "conv.weight" in message
    file = BLOCK4 / "model.safetensors"
    refuses(f"expected the path of the folder, {BLOCK4}", load_block_model, file)
    whole = (BLOCK4 / "last.ckpt").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refuses(r"a\.ckpt: .* truncated", load_block_model, path)


def test_folders_that_are_no_checkpoints(tmp_path):
    (tmp_path / "empty").mkdir()
    match = r"empty: expected a folder with config\.json, found nothing"
    refuses(match, load_block_model, tmp_path / "empty", error=FileNotFoundError)
    refuses(match, load_arm, tmp_path / "empty", error=FileNotFoundError)
    folder = changed_folder(tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    match = r"expected a folder with model\.safetensors, found config\.json, pytorch_model\.bin"
    refuses(match, load_block_model, folder, error=FileNotFoundError)
    (folder / "model.safetensors").write_text("hello")
    refuses(r"model\.safetensors: expected a safetensors file", load_block_model, folder)
    (folder / "config.json").write_text("{")
    refuses(r"config\.json: expected JSON", load_block_model, folder)
    (folder / "config.json").write_text("[]")
    refuses(r"config\.json: expected a JSON object, got list", load_block_model, folder)


@pytest.mark.parametrize("source", ["/no/such/folder", "./nowhere", "no/such.ckpt", Path("a/b")])
def test_paths_that_do_not_exist(source):
    match = "no such file or folder"
    refuses(match, load_block_model, source, error=FileNotFoundError)
    refuses(match, load_arm, source, error=FileNotFoundError)


def test_the_hub_cannot_be_reached():
    match = r"some-group/some-model: no such local folder, and no config\.json from the model hub"
    message = refuses(match, load_block_model, "some-group/some-model", error=FileNotFoundError)
    assert "give the path of a local folder" in message
    refuses(match, load_arm, "some-group/some-model", error=FileNotFoundError)


def test_the_hub_gives_two_files_and_no_more(monkeypatch):
    asked = []

    def download(repository, name, revision=None):
        asked.append((repository, name, revision))
        return str(BLOCK4 / name)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    network = read_checkpoint("kuleshov-group/bd3lm-owt-block_size4", revision="abc")
    assert_same(network, read_checkpoint(BLOCK4))
    repository = "kuleshov-group/bd3lm-owt-block_size4"
    assert asked == [(repository, "config.json", "abc"), (repository, "model.safetensors", "abc")]


def test_a_local_folder_has_no_revisions():
    refuses("revision: expected none .* got 'abc'", read_checkpoint, BLOCK4, revision="abc")


def test_folders_may_be_strings_from_home(tmp_path, monkeypatch):
    shutil.copytree(BLOCK4, tmp_path / "model")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert_same(read_checkpoint("~/model"), read_checkpoint(BLOCK4))


def test_vocabularies_must_agree():
    class Arm:
        def __init__(self, vocab_size):
            self.vocab_size = vocab_size

        def token_log_probs(self, tokens):
            raise NotImplementedError

    model = load_block_model(BLOCK4)
    check_vocabularies(model, Arm(40))
    check_vocabularies(model, load_arm(FIXTURES / "ar"))
    match = "arm: expected a vocabulary of 40 tokens .* or of 41 with its mask token, got 50257"
    refuses(match, check_vocabularies, model, Arm(50257))
