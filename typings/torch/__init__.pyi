"""What cleave needs to know of PyTorch's types: nothing; cleave.export.to_torch and cleave.frontend.torch give them."""

from typing import Any

def __getattr__(name: str) -> Any: ...
