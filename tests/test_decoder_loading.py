"""Big checkpoints: shards, dtypes, heads, and what is in memory while they are read."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.decoders import FIXTURES, GOLDEN, LAYOUTS, MASK, random_ids
from tube_lightning.checkpoints import load_block_model
from tube_lightning.networks import model_identity
from tube_lightning.scoring import conditional_table


def save(folder, tensors, config, shards=1):
    """Write tensors as one file or as shards with their index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return
    weight_map = {name: f"model-{i % shards}.safetensors" for i, name in enumerate(sorted(tensors))}
    for file in set(weight_map.values()):
        save_file(
            {n: tensors[n] for n, where in weight_map.items() if where == file}, folder / file
        )
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def read_fixture(name):
    config = json.loads((FIXTURES / name / "config.json").read_text())
    return load_file(FIXTURES / name / "model.safetensors"), config


@pytest.mark.parametrize("name", ["sdar", "llada2_moe"])
def test_shards_are_one_checkpoint(tmp_path, name):
    tensors, config = read_fixture(name)
    save(tmp_path, tensors, config, shards=3)
    one = load_block_model(FIXTURES / name, **GOLDEN[name])
    many = load_block_model(tmp_path, **GOLDEN[name])
    assert model_identity(one) == model_identity(many)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_the_wanted_dtype_counts_not_the_stored(tmp_path, stored):
    tensors, config = read_fixture("sdar")
    halves = {name: tensor.to(stored) for name, tensor in tensors.items()}
    save(tmp_path, halves, config)
    model = load_block_model(tmp_path, mask_id=MASK)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    expected = {name: tensor.float() for name, tensor in halves.items()}
    state = model.network.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())
    half = load_block_model(tmp_path, mask_id=MASK, dtype="float16")
    assert {p.dtype for p in half.parameters()} == {torch.float16}
    tokens = random_ids(2, 8)
    tables = [conditional_table(m, tokens) for m in (model, half)]
    assert 0 < (tables[0] - tables[1]).abs().max() < 0.05
    assert {p.dtype for p in half.to(torch.float64).parameters()} == {torch.float16}


def test_experts_are_chosen_in_fp32(tmp_path):
    model = load_block_model(FIXTURES / "llada2_moe", **GOLDEN["llada2_moe"], dtype="float16")
    biases = [b for n, b in model.network.named_buffers() if n.endswith("correction_bias")]
    assert len(biases) == 2
    assert {bias.dtype for bias in biases} == {torch.float32}


@pytest.mark.parametrize("flag", [True, False])
def test_the_file_decides_whether_the_head_is_tied(tmp_path, flag):
    tensors, config = read_fixture("sdar")
    config["tie_word_embeddings"] = flag
    save(tmp_path / "untied", tensors, config)
    model = load_block_model(tmp_path / "untied", mask_id=MASK)
    assert torch.equal(model.head[0], tensors["lm_head.weight"])
    del tensors["lm_head.weight"]
    save(tmp_path / "tied", tensors, config)
    model = load_block_model(tmp_path / "tied", mask_id=MASK)
    assert model.head[0] is model.network.get_input_embeddings().weight


def test_each_tensor_is_there_and_no_other_is(tmp_path):
    tensors, config = read_fixture("sdar")
    one = "model.layers.1.mlp.up_proj.weight"
    for number, (changed, message) in enumerate(
        (
            ({n: t for n, t in tensors.items() if n != one}, rf"missing {one} \[96, 48\]"),
            (tensors | {"extra.weight": torch.zeros(2)}, r"unexpected extra\.weight \[2\]"),
            (tensors | {one: torch.zeros(4, 48)}, rf"{one}: expected \[96, 48\], got \[4, 48\]"),
        )
    ):
        save(tmp_path / str(number), changed, config)
        with pytest.raises(ValueError, match=message):
            load_block_model(tmp_path / str(number), mask_id=MASK)


def test_a_missing_expert_is_told(tmp_path):
    tensors, config = read_fixture("llada_moe")
    del tensors["model.layers.0.mlp.experts.3.up_proj.weight"]
    save(tmp_path, tensors, config)
    with pytest.raises(ValueError, match=r"missing model\.layers\.0\.mlp\.experts\.gate_up_proj"):
        load_block_model(tmp_path, **GOLDEN["llada_moe"])


def test_an_index_names_files_beside_it_and_no_others(tmp_path):
    tensors, config = read_fixture("sdar")
    save(tmp_path, tensors, config, shards=2)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"lm_head.weight": "../other.safetensors"}}')
    with pytest.raises(ValueError, match="expected names of files beside it, got"):
        load_block_model(tmp_path, mask_id=MASK)
    index.write_text('{"weights": {}}')
    with pytest.raises(ValueError, match="expected a weight_map of tensors to files"):
        load_block_model(tmp_path, mask_id=MASK)


_LARGE = """
import resource, sys, torch, transformers
from tube_lightning.checkpoints import load_block_model
transformers.Qwen3ForCausalLM, transformers.AutoModelForCausalLM, transformers.AutoConfig
load_block_model(sys.argv[1], mask_id=61, check=False)  # imports, and what they keep
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = load_block_model(sys.argv[2], mask_id=61, dtype=sys.argv[3], check=False)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
weights = sum(p.numel() * p.element_size() for p in model.parameters())
print((after - before) * 1024, weights)
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_no_more_than_the_weights_and_one_tensor_is_in_memory(tmp_path, dtype):
    """A gigabyte of bfloat16 in shards; safetensors maps its files, which counts until unmapped."""
    sizes = {"vocab_size": 65536, "hidden_size": 1024, "intermediate_size": 8192}
    config = LAYOUTS["a2d-bd3lm"][1] | sizes | {"num_hidden_layers": 14, "model_type": "sdar"}
    config["architectures"] = ["SDARForCausalLM"]
    save_random(tmp_path / "big", config, shards=8)
    script = [sys.executable, "-c", _LARGE, str(FIXTURES / "sdar"), str(tmp_path / "big"), dtype]
    printed = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    grown, weights = map(int, printed.split()[-2:])
    largest = 65536 * 1024 * 4
    assert weights > 0.9e9
    assert grown < weights + largest + 64e6


def save_random(folder, config, shards):
    """Write a checkpoint of random bfloat16 shard by shard."""
    from tube_lightning.checkpoints.decoders.networks import make_network
    from tube_lightning.checkpoints.decoders.settings import plain_settings

    shapes = {
        n: t.shape for n, t in make_network("qwen3", plain_settings(config)).state_dict().items()
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    names, weight_map = sorted(shapes), {}
    for number in range(shards):
        file = f"model-{number}.safetensors"
        some = names[number::shards]
        save_file({n: torch.randn(shapes[n]).mul(0.02).bfloat16() for n in some}, folder / file)
        weight_map |= dict.fromkeys(some, file)
    index = {"weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
