"""What a network starts from: another's weights, and what the two do not share."""

from dataclasses import replace

import pytest
import torch

from tests.networks import VOCAB, random_network, random_tokens
from tests.test_objectives import arm_network
from tube_lightning.checkpoints import save_checkpoint
from tube_lightning.networks import DiT, DiTARM, DiTConfig, attend_densely
from tube_lightning.training import make_network

BLOCKS = DiTConfig(
    vocab_size=VOCAB,
    model_length=32,
    block_size=4,
    hidden_dim=32,
    cond_dim=8,
    n_blocks=2,
    n_heads=4,
)


@pytest.fixture
def arm(tmp_path):
    network = arm_network()
    save_checkpoint(tmp_path / "arm", network)
    return network, str(tmp_path / "arm")


def causal_log_probs(network, tokens):
    """The next token under a folded trunk, whatever the network is meant for."""
    trunk = network.eval().fold()
    positions = torch.arange(tokens.shape[1])
    x = trunk.run(tokens, positions, lambda _, own: attend_densely(*own, causal=True))
    return trunk.logits(x)[:, :-1].log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]


@pytest.mark.parametrize("adaln", [False, True])
def test_a_block_model_starts_as_the_arm(arm, adaln):
    """Run causally it predicts what the ARM predicts: adaLN starts as the identity."""
    network, folder = arm
    block = make_network(replace(BLOCKS, adaln=adaln), folder)
    tokens = random_tokens(2)
    expected = DiTARM.from_network(network).token_log_probs(tokens)
    torch.testing.assert_close(causal_log_probs(block, tokens), expected, atol=1e-5, rtol=0)


def test_adaln_is_not_dead(arm):
    block = make_network(BLOCKS, arm[1])
    causal_log_probs(block, random_tokens(2)).sum().backward()
    assert block.blocks[0].adaLN_modulation.weight.grad.abs().max() > 0


def test_the_mask_embedding_is_the_mean_of_the_others(arm):
    network, folder = arm
    embedding = make_network(replace(BLOCKS, adaln=False), folder).vocab_embed.embedding
    others = network.vocab_embed.embedding[:-1]
    torch.testing.assert_close(embedding[-1], others.mean(dim=0))
    assert torch.equal(embedding[:-1], others)


def test_a_mask_inside_the_vocabulary(arm):
    config = replace(BLOCKS, adaln=False, mask_id=3)
    embedding = make_network(config, arm[1]).vocab_embed.embedding
    torch.testing.assert_close(embedding[3], embedding[torch.arange(VOCAB) != 3].mean(dim=0))


def test_an_arm_without_a_mask_token(tmp_path):
    config = replace(arm_network().config, vocab_size=VOCAB - 1, mask_id=0)
    source = DiT(config)
    save_checkpoint(tmp_path / "arm", source)
    block = make_network(replace(BLOCKS, adaln=False), str(tmp_path / "arm"))
    assert torch.equal(block.vocab_embed.embedding[:-1], source.vocab_embed.embedding)
    assert torch.equal(block.output_layer.linear.weight[:-1], source.output_layer.linear.weight)


def test_what_was_done_is_said(arm, capsys):
    make_network(BLOCKS, arm[1])
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "init_from" in line]
    assert (
        "adaLN is new (sigma_map, adaLN_modulation: 10 tensors), it starts as the identity" in line
    )
    assert "the mask embedding is the mean of the others" in line


def test_a_mask_embedding_that_was_trained_is_kept(tmp_path):
    source = random_network(32, cross_attn=False)
    save_checkpoint(tmp_path / "mdlm", source)
    block = make_network(BLOCKS, str(tmp_path / "mdlm"))
    for name, tensor in source.state_dict().items():
        assert torch.equal(tensor, block.state_dict()[name])


def test_what_does_not_fit_is_named(tmp_path, arm):
    source = random_network(32, cross_attn=False)
    save_checkpoint(tmp_path / "mdlm", source)
    with pytest.raises(
        ValueError, match=r"missing nothing; surplus blocks.0.adaLN_modulation.bias"
    ):
        make_network(replace(BLOCKS, adaln=False), str(tmp_path / "mdlm"))
    with pytest.raises(ValueError, match=r"missing blocks.2.attn_out.weight.*surplus nothing"):
        make_network(replace(BLOCKS, adaln=False, n_blocks=3), arm[1])
    with pytest.raises(ValueError, match=r"norm1.weight \(32,\) instead of \(16,\)"):
        make_network(replace(BLOCKS, adaln=False, hidden_dim=16), arm[1])
