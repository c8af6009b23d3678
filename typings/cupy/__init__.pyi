"""What cleave needs to know of CuPy's types: nothing; cleave.runtime.cuda gives them."""

from typing import Any

def __getattr__(name: str) -> Any: ...
