from .stages import GroupDRO as GroupDRO
from .stages import GroupDROModel as GroupDROModel
