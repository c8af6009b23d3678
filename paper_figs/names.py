"""Names as figures print them."""

from __future__ import annotations

from cleave.nn.workloads import NINE
from experiments.e01_ablation.config import points

SUBGRAPHS = {
    "matmul": "matmul",
    "matmul_matmul": "matmul–\nmatmul",
    "matmul_rowsum": "matmul–\nrow sum",
    "swiglu": "SwiGLU",
    "rmsnorm_matmul": "RMSNorm–\nmatmul",
    "mha": "MHA",
    "gqa": "GQA",
    "mqa": "MQA",
    "mla": "MLA",
}


def subgraphs() -> list[str]:
    """In the paper's order."""
    return list(dict.fromkeys(p.subgraph for p in points(NINE)))


def in_line(name: str) -> str:
    """A subgraph's name without line breaks."""
    return SUBGRAPHS.get(name, name).replace("\n", "")
