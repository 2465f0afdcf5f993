"""Group-robust training of PyTorch models: a loss that carries the dual, and sums over ranks.

Needs ``pip install counterpoise[torch]``; ``import counterpoise`` alone does not import it.
"""

from counterpoise.torch.distributed import group_sums, reduce_checked, reduce_sums, world_size
from counterpoise.torch.loss import GroupDROLoss

__all__ = ["GroupDROLoss", "group_sums", "reduce_checked", "reduce_sums", "world_size"]
