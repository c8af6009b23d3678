"""What cleave needs to know of onnx's types: nothing; cleave.export.to_onnx gives them."""

from typing import Any

def __getattr__(name: str) -> Any: ...
