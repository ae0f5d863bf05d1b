"""Small networks with random weights, for tests."""

import torch

from tube_lightning.networks import BlockDiffusion, DiT, DiTConfig

VOCAB = 23
LENGTH = 32


def random_network(block_size, *, seed=0, cross_attn=True, length=LENGTH, std=0.3):
    """Every parameter is random, the modulation's too: nothing is an identity by accident."""
    config = DiTConfig(
        vocab_size=VOCAB,
        model_length=length,
        block_size=block_size,
        hidden_dim=32,
        cond_dim=8,
        n_blocks=2,
        n_heads=4,
        cross_attn=cross_attn,
    )
    network = DiT(config).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=std, generator=generator)
    return network


def random_model(block_size, **options):
    return BlockDiffusion.from_network(random_network(block_size, **options))


def random_tokens(batch, length=LENGTH, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCAB - 1, (batch, length), generator=generator)


def state_of(network):
    """The state dict under its published names, for the naive forward."""
    return {f"backbone.{name}": value for name, value in network.state_dict().items()}
