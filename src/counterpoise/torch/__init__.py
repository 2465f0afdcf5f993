"""Group-robust training of PyTorch models: a loss that carries the dual, and sums over ranks.

Stands on `reweight`. Needs the package torch, which ``import counterpoise`` does not import.
"""

from counterpoise.torch.distributed import group_sums, reduce_checked, reduce_sums, world_size
from counterpoise.torch.loss import GroupDROLoss
from counterpoise.torch.weighing import weigh_losses

__all__ = [
    "GroupDROLoss",
    "group_sums",
    "reduce_checked",
    "reduce_sums",
    "weigh_losses",
    "world_size",
]
