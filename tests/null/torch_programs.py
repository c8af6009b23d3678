"""Programs of PyTorch that are imported by the tests, and how an import is compared with torch itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from cleave.frontend.torch import Imported, from_torch
from cleave.ir.interp import interpret

SIZES: Sequence[Mapping[str, int]] = ({"n": 5, "m": 3, "b": 2}, {"n": 1, "m": 4, "b": 1}, {"n": 7, "m": 1, "b": 3})
EXAMPLE = {"n": 6, "m": 10, "b": 4}


@dataclass(frozen=True)
class Case:
    """A function of tensors; their shapes as text: ``"b n 8"``, ``"int64 n"``, ``"bool n m"``."""

    name: str
    function: Callable[..., Any]
    shapes: tuple[str, ...]
    sizes: Sequence[Mapping[str, int]] = SIZES


def case(name: str, function: Callable[..., Any], *shapes: str, sizes: Sequence[Mapping[str, int]] = SIZES) -> Case:
    return Case(name, function, shapes, sizes)


def tensors(shapes: Sequence[str], sizes: Mapping[str, int], rng: np.random.Generator) -> list[Any]:
    """Fresh values: normal numbers with some zeros, small integers, masks."""
    return [_tensor(text.split(), sizes, rng) for text in shapes]


def _tensor(words: list[str], sizes: Mapping[str, int], rng: np.random.Generator) -> Any:
    dtype = words.pop(0) if words and words[0] in ("int64", "bool", "float32", "float16") else "float64"
    shape = tuple(int(w) if w.isdigit() else sizes[w] for w in words)
    if dtype == "bool":
        return torch.from_numpy(np.asarray(rng.random(shape) < 0.6))
    if dtype == "int64":
        return torch.from_numpy(np.asarray(rng.integers(0, 4, shape)))
    values = np.where(rng.random(shape) < 0.1, 0.0, rng.normal(size=shape))
    return torch.from_numpy(np.asarray(values)).to(getattr(torch, dtype))


def dynamic(shapes: Sequence[str]) -> tuple[dict[int, Any], ...]:
    """Every letter a Dim of that name."""
    words = ([w for w in text.split() if w not in ("int64", "bool", "float32", "float16")] for text in shapes)
    return tuple({k: Dim(w, min=1, max=512) for k, w in enumerate(axes) if not w.isdigit()} for axes in words)


def imported(c: Case) -> Imported:
    args = tensors(c.shapes, EXAMPLE, np.random.default_rng(0))
    shapes = dynamic(c.shapes)
    return from_torch(c.function, args, dynamic_shapes=shapes)


def interpreted(made: Imported, args: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
    """Outputs of the interpreter for arguments in order."""
    passed = [i.name for i in made.graph.inputs if i.name not in made.values]
    given = dict(zip(passed, args, strict=True)) | dict(made.values)
    arrays = {name: np.asarray(x.detach().cpu().numpy()) for name, x in given.items()}
    found = interpret(made.graph, arrays, {s.name: sizes[s.name] for s in made.graph.symbols})
    return [found[o.name] for o in made.graph.outputs]


def compare(got: Sequence[Any], want: Any, tolerance: float = 1e-9) -> None:
    """Results of one program, in order; what torch has as NaN where a whole row is masked is 0 in a graph."""
    results = want if isinstance(want, (tuple, list)) else (want,)
    assert len(got) == len(results)
    for x, y in zip(got, results, strict=True):
        expected = np.nan_to_num(y.detach().to(torch.float64).numpy(), nan=0.0, posinf=np.inf, neginf=-np.inf)
        assert np.shape(x) == expected.shape
        np.testing.assert_allclose(x, expected, rtol=tolerance, atol=tolerance)


# ---- the modules of Llama, as Hugging Face writes them


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.eps = eps

    def forward(self, x: Any) -> Any:
        dtype = x.dtype
        x = x.to(torch.float32) if dtype != torch.float64 else x
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(dtype)


def rotate_half(x: Any) -> Any:
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-second, first), dim=-1)


def repeat_kv(x: Any, times: int) -> Any:
    batch, heads, length, width = x.shape
    return x[:, :, None].expand(batch, heads, times, length, width).reshape(batch, heads * times, length, width)


class Attention(nn.Module):
    """Grouped queries, rotary embedding; ``by_hand`` spells softmax and mask out, as older versions do."""

    def __init__(self, width: int, heads: int, kv_heads: int, head: int, *, by_hand: bool = False) -> None:
        super().__init__()
        self.groups, self.head, self.by_hand = heads // kv_heads, head, by_hand
        self.q_proj = nn.Linear(width, heads * head, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * head, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * head, bias=False)
        self.o_proj = nn.Linear(heads * head, width, bias=False)

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        batch, length, _ = x.shape
        q, k, v = (
            p(x).view(batch, length, -1, self.head).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        q, k = (y * cos + rotate_half(y) * sin for y in (q, k))
        k, v = repeat_kv(k, self.groups), repeat_kv(v, self.groups)
        out = self._by_hand(q, k, v) if self.by_hand else F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).contiguous().view(batch, length, -1))

    def _by_hand(self, q: Any, k: Any, v: Any) -> Any:
        length = q.shape[2]
        mask = torch.full((length, length), float("-inf"), dtype=q.dtype).triu(diagonal=1)
        scores = torch.matmul(q, k.transpose(2, 3)) / self.head**0.5 + mask
        return torch.matmul(F.softmax(scores, dim=-1).to(q.dtype), v)


class MLP(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Any) -> Any:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(24), RMSNorm(24)
        self.self_attn = Attention(24, 4, 2, 6)
        self.mlp = MLP(24, 40)

    def forward(self, hidden: Any, cos: Any, sin: Any) -> Any:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), cos, sin)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))
