"""The usual operators as plain graphs of primitives, and the tables that the command line finds them in.

attention.py         softmax(q kᵀ · scale) v: heads in groups, masks, soft cap, biases, QK norm; scores.py its options
definition.py        from_definition: definitions of FlashInfer-Bench as graphs
layers.py            a decoder layer of Llama 3, Qwen3 and GPT-2
linear_attention.py  f(q) f(k)ᵀ v
matmul.py            a b, (q kᵀ) v, row sums of a product, low-rank corrections
mla.py               latent attention in decode: keys and values are one tensor, or projected from it
mlp.py               silu(x w1) · (x w2)
moe.py               softmax and top-k of the logits of experts
norm.py              RMS and layer norms, in front of a product and between residual sums
paged.py             attention over batches of requests, keys in pages or packed
projection.py        attention with the projections of queries, keys and values
quantised.py         per-token absmax quantisation in front of a product
rope.py              rotary position embeddings, alone and on queries and keys
softmax.py           along rows, and in front of a product
tables.py            check_tables: tables of a batch of requests, before they are used
operators.py         OPERATORS: every one by name, with the dims and options that a user may give
workloads.py         WORKLOADS: the sizes at which they are compared
"""

from cleave.nn.attention import attention, qk_norm_attention
from cleave.nn.definition import from_definition
from cleave.nn.layers import gpt2_layer, llama_layer
from cleave.nn.linear_attention import linear_attention
from cleave.nn.matmul import lora, matmul, matmul_matmul, matmul_rowsum
from cleave.nn.mla import mla_decode, mla_projected
from cleave.nn.mlp import swiglu
from cleave.nn.moe import moe_routing
from cleave.nn.norm import layernorm, layernorm_linear, norm_residual_norm, residual_rmsnorm, rmsnorm, rmsnorm_matmul
from cleave.nn.operators import OPERATORS, Operator, instantiate
from cleave.nn.paged import mla_paged_decode, mla_paged_prefill, paged_decode, paged_prefill, ragged_prefill
from cleave.nn.projection import qkv_attention
from cleave.nn.quantised import quantised_matmul
from cleave.nn.rope import rope, rope_attention
from cleave.nn.softmax import softmax, softmax_matmul
from cleave.nn.tables import check_tables
from cleave.nn.workloads import WORKLOADS, Workload

__all__ = [
    "OPERATORS",
    "WORKLOADS",
    "Operator",
    "Workload",
    "attention",
    "check_tables",
    "from_definition",
    "gpt2_layer",
    "instantiate",
    "layernorm",
    "layernorm_linear",
    "linear_attention",
    "llama_layer",
    "lora",
    "matmul",
    "matmul_matmul",
    "matmul_rowsum",
    "mla_decode",
    "mla_paged_decode",
    "mla_paged_prefill",
    "mla_projected",
    "moe_routing",
    "norm_residual_norm",
    "paged_decode",
    "paged_prefill",
    "qk_norm_attention",
    "qkv_attention",
    "quantised_matmul",
    "ragged_prefill",
    "residual_rmsnorm",
    "rmsnorm",
    "rmsnorm_matmul",
    "rope",
    "rope_attention",
    "softmax",
    "softmax_matmul",
    "swiglu",
]
