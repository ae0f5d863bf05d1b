"""Networks that one device cannot hold: transformers' own tensor parallelism, inside of groups.

Every process of a group has a part of each large matrix and runs the same rows; groups are dealt
different batches. The embedding and the head are whole everywhere.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor

_WHOLE = "lm_head"
"""Our log-softmax wants all of the vocabulary."""


def cut_network(network: nn.Module, num_processes: int) -> None:
    """Cut the matrices of an empty network over groups of neighbouring processes."""
    from transformers.distributed.configuration_utils import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    some: Any = network
    plan, *_ = some._resolve_parallel_plans(DistributedConfig(tp_size=num_processes))
    if not plan:
        raise ValueError(
            f"tensor_parallel: expected a network that transformers can cut, got "
            f"{type(network).__name__}"
        )
    plan = {name: style for name, style in plan.items() if not name.startswith(_WHOLE)}
    apply_tensor_parallelism(some, _make_mesh(num_processes), plan)


def keep_own_part(whole: Tensor, like: DTensor) -> DTensor:
    """Keep this process's part of a tensor, and let the rest go."""
    cut = distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)
    return DTensor.from_local(
        cut.to_local().clone(),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=whole.shape,
        stride=whole.stride(),
    )


def _make_mesh(num_processes: int) -> DeviceMesh:
    if not dist.is_initialized():
        raise ValueError(
            f"tensor_parallel: expected {num_processes} processes or more that were started "
            "together (torchrun, srun), got one"
        )
    world_size = dist.get_world_size()
    if world_size % num_processes:
        raise ValueError(
            f"tensor_parallel: expected a divisor of the {world_size} processes, got "
            f"{num_processes}"
        )
    shape = (world_size // num_processes, num_processes)
    kind = torch.get_default_device().type
    return init_device_mesh(kind, shape, mesh_dim_names=("batches", "tp"))["tp"]
