"""Families of diffusion decoders: the authors' own numbers, and layouts without any."""

import json

import pytest
import torch
from safetensors.torch import load_file

from tests.decoders import FIXTURES, GOLDEN, LAYOUTS, MASK, random_ids, reference, save_layout
from tube_lightning.checkpoints import load_block_model, read_sizes
from tube_lightning.networks import SamplingModel
from tube_lightning.orderings import all_sets, block_roles
from tube_lightning.scoring import conditional_table


@pytest.mark.parametrize("name", GOLDEN)
def test_the_authors_own_code_agrees(name):
    golden = load_file(FIXTURES / name / "golden.safetensors")
    model = load_block_model(FIXTURES / name, **GOLDEN[name])
    assert model.mask_id == int(golden["mask_id"])
    tokens, revealed, size = golden["tokens"], golden["revealed"], golden["revealed"].shape[1]
    sets, row = torch.unique(revealed, dim=0, return_inverse=True)
    table = conditional_table(model, tokens, sets)
    found = table[golden["sequence"], golden["start"] // size, row]
    # its first token is always given: rows that hide it are none of ours
    ours = ~golden["log_probs"].isnan().any(dim=1)
    assert ours.sum() >= 24
    torch.testing.assert_close(found[ours], golden["log_probs"][ours], atol=1e-5, rtol=0)


def plain_log_probs(network, facts, tokens, revealed, start):
    """log p(true token) at all positions of a block, by a plain forward with an explicit mask."""
    size = len(revealed)
    noisy = tokens[start : start + size].where(revealed, facts.mask_id)
    row = torch.cat([tokens[:start], noisy])
    place = torch.arange(len(row))
    sees = place[:, None] // size >= place // size
    if facts.context == "causal":
        sees = (place[:, None] >= place) | (place[:, None] >= start)
    network.set_attn_implementation("sdpa")
    with torch.no_grad():
        logits = network(row[None], attention_mask=sees[None, None], use_cache=False).logits[0]
    log_probs = logits.double().log_softmax(dim=-1)
    at = (place[start:] - int(facts.shift)).clamp(min=0)
    return log_probs[at].gather(-1, tokens[start : start + size, None])[:, 0]


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_agree_with_a_plain_forward(tmp_path, name):
    options = save_layout(name, tmp_path)
    model = load_block_model(tmp_path, **options)
    network, facts = reference(name), model.config
    length = 20
    size = facts.block_size or length
    tokens = random_ids(2, length)
    sets = torch.rand(5, size, generator=torch.Generator().manual_seed(1)) < 0.5
    sets[:, 0] |= torch.tensor(facts.shift)
    table = conditional_table(model, tokens, sets)
    for sequence, ids in enumerate(tokens):
        for block, start in enumerate(range(0, length - size + 1, size)):
            for number, revealed in enumerate(sets):
                expected = plain_log_probs(network, facts, ids, revealed, start)
                found = table[sequence, block, number]
                torch.testing.assert_close(
                    found, expected.masked_fill(revealed, 0.0), atol=1e-5, rtol=0
                )


def test_queries_of_nemotron_may_be_unscaled(tmp_path):
    options = save_layout("nemotron", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = load_block_model(tmp_path, **options)  # which tries it against a plain forward
    assert model.network.config.rope_parameters["llama_4_scaling_beta"] == 0


@pytest.mark.parametrize("name", ["sdar", "nemotron", "diffugpt"])
def test_memory_and_numbers_do_not_depend_on_the_budget(tmp_path, name):
    if name == "sdar":
        model = load_block_model(FIXTURES / name, **GOLDEN[name])
    else:
        model = load_block_model(tmp_path, **save_layout(name, tmp_path))
    tokens = random_ids(3, 16)
    size = model.config.block_size or 16
    sets = all_sets(4).repeat(1, size // 4)
    sets[:, 0] = True
    tables = [conditional_table(model, tokens, sets, token_budget=n) for n in (16, 70, 10_000)]
    for table in tables[1:]:
        torch.testing.assert_close(table, tables[0], atol=1e-5, rtol=0)


def test_a_sequence_in_a_longer_batch_has_the_numbers_of_its_own_length():
    model = load_block_model(FIXTURES / "llada")
    tokens = random_ids(2, 10)
    sets = torch.rand(6, 10, generator=torch.Generator().manual_seed(1)) < 0.5
    roles = block_roles(10, 10, num_given=0).repeat(2, 1, 1)
    roles[1, 0, 7:] = 3
    both = conditional_table(model, tokens, sets, roles=roles)
    alone = conditional_table(model, tokens[1:, :7], sets[:, :7])
    torch.testing.assert_close(both[1, :, :, :7], alone[0], atol=1e-5, rtol=0)
    assert (both[1, :, :, 7:] == 0).all()
    absent = roles.masked_fill(roles == 3, 2)
    others = conditional_table(model, tokens, sets, roles=absent)
    assert (others[1, :, :, :7] - alone[0]).abs().max() > 0.01  # masks that are there are seen


def test_blocks_of_one_size_have_nothing_to_cut():
    model = load_block_model(FIXTURES / "sdar", mask_id=MASK)
    roles = block_roles(8, 4, num_given=0)
    roles[1, 3] = 3
    with pytest.raises(ValueError, match="expected no cut positions for blocks of 4"):
        conditional_table(model, random_ids(1, 8), roles=roles)


def test_nobody_predicts_the_first_token_of_a_shifted_model():
    model = load_block_model(FIXTURES / "dream")
    tokens = random_ids(1, 6)
    with pytest.raises(ValueError, match="expected the first token of a sequence to be given"):
        conditional_table(model, tokens, roles=block_roles(6, 6, num_given=0))
    expected = conditional_table(model, tokens, roles=block_roles(6, 6))
    assert conditional_table(model, tokens).equal(expected)


@pytest.mark.parametrize("name", GOLDEN)
def test_sizes_are_known_without_weights(tmp_path, name):
    (tmp_path / "config.json").write_bytes((FIXTURES / name / "config.json").read_bytes())
    sizes = read_sizes(tmp_path, **GOLDEN[name])
    model = load_block_model(FIXTURES / name, **GOLDEN[name])
    assert sizes == (model.vocab_size, model.max_length)
    assert isinstance(model, SamplingModel)


def test_what_files_do_not_tell_is_said(tmp_path, capsys):
    load_block_model(FIXTURES / "sdar", mask_id=MASK)
    assert "block_size=4, usual for sdar: its files do not tell" in capsys.readouterr().err
    named = tmp_path / "SDAR-tiny-b2"
    named.symlink_to(FIXTURES / "sdar")
    assert load_block_model(named, mask_id=MASK).block_size == 2
    assert capsys.readouterr().err == ""
    assert load_block_model(named, mask_id=MASK, block_size=8).block_size == 8
    with pytest.raises(ValueError, match=r"expected one of the 64 tokens, got 151669, which"):
        load_block_model(FIXTURES / "sdar")


def test_a_block_may_be_the_whole_sequence():
    model = load_block_model(FIXTURES / "sdar", mask_id=MASK, block_size="whole")
    table = conditional_table(model, random_ids(1, 5))
    assert table.shape == (1, 1, 32, 5)
    with pytest.raises(ValueError, match="expected a number or 'whole', got 'all'"):
        load_block_model(FIXTURES / "sdar", block_size="all")


def test_the_block_size_of_one_block_is_the_longest_sequence(capsys):
    assert read_sizes(FIXTURES / "llada", block_size=4).length == 4
    model = load_block_model(FIXTURES / "llada", block_size=4)
    assert (model.own_length, model.max_length) == (True, 4)
    assert "llada is one block: sequences of at most 4 tokens" in capsys.readouterr().err


def test_a_block_is_at_most_a_sequence_and_at_least_a_token():
    with pytest.raises(ValueError, match=r"expected at most 64 \(the longest sequence\), got 65"):
        load_block_model(FIXTURES / "sdar", mask_id=MASK, block_size=65)
    for name in ("sdar", "llada"):
        with pytest.raises(ValueError, match="block_size: expected at least 1, got 0"):
            load_block_model(FIXTURES / name, block_size=0)


def test_the_user_says_what_config_json_cannot(tmp_path):
    with pytest.raises(ValueError, match="which of a2d-bd3lm, a2d-mdlm it is: give family=NAME"):
        load_block_model(FIXTURES / "a2d_qwen3_mdlm", mask_id=MASK)
    whole = load_block_model(FIXTURES / "a2d_qwen3_mdlm", mask_id=MASK, block_size="whole")
    assert whole.config.context == "none"
    for name, candidates in (("diffullama", "diffullama"), ("open-dllm", "open-dllm")):
        folder = tmp_path / name
        save_layout(name, folder)
        with pytest.raises(ValueError, match=f"if it is one of {candidates}, give family=NAME"):
            load_block_model(folder, mask_id=MASK)
    with pytest.raises(ValueError, match="tell the mask token: give mask_id="):
        load_block_model(tmp_path / "open-dllm", family="Open_dLLM")
    with pytest.raises(ValueError, match="family: expected one of bd3lm, radd, sdar"):
        load_block_model(tmp_path / "open-dllm", family="gpt")


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ('{"model_type": "udlm"}', "UDLM"),
        ('{"architectures": ["DUO"]}', "Duo"),
        ('{"model_type": "diffusion_gemma"}', "DiffusionGemma"),
        ('{"architectures": ["TiDARForCausalLM"]}', "TiDAR"),
        ('{"architectures": ["DFlashDraftModel"]}', "DFlash"),
        ('{"graph": {"type": "absorb"}, "model": {}, "tokens": 9}', "SEDD"),
        ('{"model_type": "esolm"}', "Eso-LM"),
    ],
)
def test_families_without_a_conditional_are_refused_by_name(tmp_path, config, name):
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ValueError, match=f"{name} has no likelihood here: "):
        load_block_model(tmp_path)
    with pytest.raises(ValueError, match=f"{name} has no likelihood here: "):
        load_block_model(FIXTURES / "sdar", family=name)


@pytest.mark.parametrize(
    ("family", "field"),
    [("llada", "n_heads"), ("diffugpt", "n_embd"), ("llada2", "num_experts"), ("radd", "model")],
)
def test_a_field_that_config_json_lacks_is_named(family, field):
    with pytest.raises(ValueError, match=rf"config\.json: expected a field '{field}', found none"):
        load_block_model(FIXTURES / "sdar", family=family)


def test_a_decoder_that_nobody_knows_is_no_arm_of_transformers(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["WeDLMForCausalLM"]}')
    with pytest.raises(ValueError, match=r"WeDLMForCausalLM.*a family of your own needs plugin="):
        load_block_model(tmp_path)


def test_a_network_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the tensors are not those of Qwen3ForCausalLM"):
        load_block_model(FIXTURES / "dream", family="sdar")
    for name, field, text in (
        ("llada", '"scale_logits": false', '"scale_logits": true'),
        ("sdar", '"use_sliding_window": false', '"use_sliding_window": true'),
    ):
        config = (FIXTURES / name / "config.json").read_text()
        assert field in config
        (tmp_path / "config.json").write_text(config.replace(field, text))
        with pytest.raises(ValueError, match=r"expected (False|false)"):
            load_block_model(tmp_path, **GOLDEN[name])
