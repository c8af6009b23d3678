"""Operators of PyTorch's ATen, by name: arguments by the names in their schemas, extents of results from torch.

call.py   the table, which the other modules fill
"""

from cleave.frontend.torch.aten import elementwise, layout, reduction
from cleave.frontend.torch.aten.call import HANDLERS, Call, name_of

__all__ = ["HANDLERS", "Call", "elementwise", "layout", "name_of", "reduction"]
