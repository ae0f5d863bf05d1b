"""The network that training starts from: random weights, or those of another model.

A block model may start from an autoregressive one of its sizes. What the two do not share:

- the mask embedding, which an ARM has never used (or does not have): the mean of all others;
- adaLN, which an ARM does not have: no shift, no scale, and open gates, so that every layer starts
  as the ARM's;
- what a position predicts, the next token or its own: training teaches it.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from tube_lightning.checkpoints import read_checkpoint
from tube_lightning.networks import DiT, DiTConfig
from tube_lightning.training.screen import tell

_MODULATION = ("sigma_map", "adaLN_modulation")
_VOCABULARY = ("vocab_embed.embedding", "output_layer.linear.weight", "output_layer.linear.bias")


def make_network(config: DiTConfig, init_from: str | None = None, *, seed: int = 0) -> DiT:
    """Make a network, from scratch or with the weights of another (ARM or MDLM -> BD3-LM, ...)."""
    with torch.random.fork_rng(devices=[]):  # torch initialises from the global generator
        torch.manual_seed(seed)
        network = DiT(config)
    if init_from is None:
        return network
    source = read_checkpoint(init_from)
    weights, said = _adopt(source, config)
    missing, surplus = _compare_names(network.state_dict(), weights)
    if missing and all(_is_modulation(name) for name in missing):
        _open_gates(network)
        weights |= {name: network.state_dict()[name] for name in missing}
        kinds = ", ".join(kind for kind in _MODULATION if any(kind in name for name in missing))
        said.append(f"adaLN is new ({kinds}: {len(missing)} tensors), it starts as the identity")
        missing = []
    differing = [
        f"{name} {tuple(weights[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in network.state_dict().items()
        if name in weights and weights[name].shape != tensor.shape
    ]
    if missing or surplus or differing:
        raise ValueError(
            f"init_from: {init_from} does not fit the network: "
            f"missing {_list(missing)}; surplus {_list(surplus)}; of another shape "
            f"{_list(differing)}"
        )
    network.load_state_dict(weights)
    tell(f"init_from: {init_from}: {'; '.join(['all weights taken', *said])}")
    return network


def _adopt(source: DiT, config: DiTConfig) -> tuple[dict[str, Tensor], list[str]]:
    """Return another network's weights with a row for our mask, and what was done to them."""
    weights = {name: tensor.clone() for name, tensor in source.state_dict().items()}
    said = []
    if (
        source.config.vocab_size == config.vocab_size - 1
        and config.mask_id == config.vocab_size - 1
    ):
        for name in _VOCABULARY:
            weights[name] = torch.cat([weights[name], torch.zeros_like(weights[name][:1])])
        said.append("the vocabulary is one longer, for the mask token")
    if source.config.causal and not config.causal:
        embedding = weights["vocab_embed.embedding"]
        others = torch.arange(len(embedding)) != config.mask_id
        embedding[config.mask_id] = embedding[others].mean(dim=0)
        said.append("the mask embedding is the mean of the others")
    return weights, said


def _compare_names(
    wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]
) -> tuple[list[str], list[str]]:
    return sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())


def _is_modulation(name: str) -> bool:
    return any(part in name for part in _MODULATION)


@torch.no_grad()
def _open_gates(network: DiT) -> None:
    """Make every modulation the identity: the gates, chunks 2 and 5 of a layer's six, are one."""
    dim = network.config.hidden_dim
    for name, bias in network.blocks.named_parameters():
        if name.endswith("adaLN_modulation.bias"):
            bias[2 * dim : 3 * dim] = 1
            bias[5 * dim :] = 1


def _list(names: list[str]) -> str:
    return ", ".join(names) or "nothing"
