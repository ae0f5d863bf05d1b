"""The moving average of weights, against its closed form."""

import pytest
import torch
from torch import nn

from tube_lightning.training import WeightAverage


def test_average_follows_the_closed_form():
    network = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        network.weight.fill_(1.0)
    average = WeightAverage(network, decay=0.5)
    expected = 1.0
    for count, value in enumerate([3.0, -2.0, 5.0, 0.5], start=1):
        with torch.no_grad():
            network.weight.fill_(value)
        average.update(network)
        decay = min(0.5, (1 + count) / (10 + count))
        expected = decay * expected + (1 - decay) * value
    with average.applied_to(network):
        assert network.weight.item() == pytest.approx(expected, rel=1e-6)
    assert network.weight.item() == 0.5


def test_weights_come_back_after_an_error():
    network = nn.Linear(2, 2)
    average = WeightAverage(network, decay=0.9)
    before = network.weight.clone()
    with torch.no_grad():
        network.weight.add_(1)

    def fails_inside():
        with average.applied_to(network):
            assert torch.equal(network.weight, before)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fails_inside()
    assert torch.equal(network.weight, before + 1)


def test_state_survives_saving():
    network = nn.Sequential(nn.Linear(2, 2))
    average = WeightAverage(network, decay=0.9)
    with torch.no_grad():
        network[0].weight.add_(1)
    average.update(network)
    restored = WeightAverage(nn.Sequential(nn.Linear(2, 2)), decay=0.9)
    restored.load_state_dict(average.state_dict())
    assert restored.num_updates == 1
    for ours, theirs in zip(restored.buffers(), average.buffers(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_decay_is_checked(decay):
    with pytest.raises(ValueError, match=str(decay)):
        WeightAverage(nn.Linear(1, 1), decay)
