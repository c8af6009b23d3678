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

DYNAMIC = {
    "gqa_paged_decode_h32_kv4_d128_ps1": "decode\nkv 4",
    "gqa_paged_decode_h32_kv8_d128_ps1": "decode\nkv 8",
    "gqa_paged_prefill_causal_h32_kv4_d128_ps1": "paged\nprefill\nkv 4",
    "gqa_paged_prefill_causal_h32_kv8_d128_ps1": "paged\nprefill\nkv 8",
    "gqa_ragged_prefill_causal_h32_kv4_d128": "ragged\nprefill\nkv 4",
    "gqa_ragged_prefill_causal_h32_kv8_d128": "ragged\nprefill\nkv 8",
    "mla_paged_decode_h16_ckv512_kpe64_ps1": "MLA\ndecode",
    "mla_paged_prefill_causal_h16_ckv512_kpe64_ps1": "MLA\nprefill",
    "mla_ragged_prefill_causal_h16_qk192_vo128": "MLA\nragged\n(made up)",
}
"""Operators at shapes known at run time."""


def subgraphs() -> list[str]:
    """In the paper's order."""
    return list(dict.fromkeys(p.subgraph for p in points(NINE)))


def in_line(name: str) -> str:
    """A subgraph's name without line breaks, or an operator's."""
    return DYNAMIC.get(name, "").replace("\n", " ") or SUBGRAPHS.get(name, name).replace("\n", "")
