"""Operators of PyTorch as graphs: the interpreter gives what torch gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F

from cleave.ir.text import parse_graph
from tests.null.torch_programs import Case, case, compare, imported, interpreted, tensors

inf = float("inf")


def masked_scores(q: Any, k: Any, mask: Any) -> Any:
    scores = torch.einsum("bnd,bmd->bnm", q, k)
    return scores.masked_fill(mask.logical_not(), -1e9).softmax(-1)


def positions(x: Any) -> Any:
    i, j = torch.arange(x.shape[0])[:, None], torch.arange(x.shape[1])[None, :]
    window = (j <= i) & (i < j + 3) | (j == 0) & ((i - j).abs() < 9)
    return torch.where(window, x, -inf).amax(1)


def rope_interleaved(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


def nearly_rotations(x: Any, y: Any, c: Any, s: Any) -> Any:
    """Close to rotary embeddings, each different from one in its own way."""
    a, b = x[..., :4], x[..., 4:]
    u, v = c[..., :4], s[..., :4]
    return (
        x * c + torch.cat((b, -a), -1) * s,
        x * c - torch.cat((-b, a), -1) * s,
        x * c + torch.cat((-b, -a), -1) * s,
        x * c + torch.cat((-b, a), -1),
        x * c + torch.cat((-y[..., 4:], y[..., :4]), -1) * s,
        x * c + torch.cat((-x[..., 2:6], x[..., :4]), -1) * s,
        torch.stack((a * u - b * v, a * v - b * u), -1),
        torch.stack((a * u + b * v, a * v + b * u), -1),
        torch.stack((a * u - b * v, b * v + a * u), -1),
        torch.stack((a * u - b * v, a * v + b * v), -1),
        torch.stack((a * u - a * v, a * v + a * u), -1),
        torch.stack((b * u - a * v, b * v + a * u), -1),
        torch.cat((-x[..., 6:], x[..., 4:6], x[..., 2:4], -x[..., :2]), -1),
        torch.cat((x[..., :2], x[..., 4:6], x[..., 2:4]), -1),
    )


def sdpa(**options: Any) -> Any:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options)


ELEMENTWISE = [
    case("numbers", lambda x, y: (x + 2 * y) / (y * y + 1) - 3 * x, "n m", "n m"),
    case("broadcast", lambda x, y, z: x * y + z[:, None], "b n m", "m", "n"),
    case("alpha", lambda x, y: torch.add(x, y, alpha=2) - torch.sub(y, x, alpha=0.5) + torch.rsub(x, 1), "n", "n"),
    case("functions", lambda x: torch.exp(x) + torch.tanh(x).abs() + F.silu(x) * torch.sigmoid(-x), "n 3"),
    case("roots", lambda x: torch.rsqrt(x * x + 1) + torch.log(x.square() + 2) + torch.sqrt(x**2), "n 3"),
    case("powers", lambda x: x**3 + x.pow(4) - (x * x + 1) ** -0.5 + torch.reciprocal(x.abs() + 1), "n"),
    case("gelu", lambda x: F.gelu(x, approximate="tanh") + F.relu(x), "n m"),
    case("extremes", lambda x, y: torch.maximum(x, y) - torch.minimum(x, y) + x.clamp(-0.5, 1.0), "n", "n"),
    case("division by a dim", lambda x: x / x.shape[1] + x.shape[0], "n m"),
    case("masks", lambda x, p: torch.where(p, x, 0.0) + x.masked_fill(~p, 2.0), "n m", "bool n m"),
    case("triangles", lambda x: x.tril() + x.triu(1) * 2 + x.tril(-1), "b n m"),
    case("positions", positions, "n m"),
    case("made", lambda x: x + torch.ones_like(x) + torch.full((x.shape[0], 1), 3.0, dtype=x.dtype), "n m"),
    case("casts", lambda x: (x.to(torch.float16).to(torch.float64) * 3).to(torch.bfloat16).double(), "n"),
    case("round", lambda x: torch.round(x * 4), "n"),
]
LAYOUT = [
    case("heads", lambda x: x.view(x.shape[0], x.shape[1], 2, 3).transpose(1, 2), "b n 6"),
    case("merge", lambda x: x.permute(1, 0, 2).reshape(x.shape[1], -1), "b n 6"),
    case("merge unlike", lambda x: x.reshape(-1, 4).sum(0), "b n 6", sizes=[{"b": 2, "n": 4}, {"b": 4, "n": 1}]),
    case("flatten", lambda x: x.flatten(1).unflatten(1, (3, -1)).squeeze(0), "1 n 6"),
    case("repeat", lambda x: x.repeat(2, 3) + x.repeat_interleave(3, dim=1).repeat(2, 1), "n 4"),
    case("expand", lambda x, y: x[:, None].expand(-1, 3, -1).reshape(-1, x.shape[1]) * y, "n m", "m"),
    case("slices", lambda x: x[:, 1:5] + x[..., ::2][:, :4] - x[:, -4:], "n 8"),
    case("select", lambda x: x[:, 2] + x[:, -1] + x.select(1, 0), "n 8"),
    case("split", lambda x: (lambda a, b, c: a * b + c)(*x.split(4, dim=-1)), "n 12"),
    case("chunk", lambda x: (lambda a, b: F.silu(a) * b)(*x.chunk(2, dim=-1)), "b n 10"),
    case("split sizes", lambda x: (lambda a, b: a.sum(-1) + b[..., 0])(*x.split([3, 5], -1)), "n 8"),
    case("unbind", lambda x: (lambda a, b, c: a + b * c)(*x.unbind(1)), "n 3 m"),
    case("rotate half", lambda x, c, s: x * c + torch.cat((-x[..., 4:], x[..., :4]), -1) * s, "b n 8", "n 8", "n 8"),
    case("interleaved", rope_interleaved, "b n 8", "n 4", "n 4"),
    case("nearly rotations", nearly_rotations, "b n 8", "b n 8", "n 8", "n 8"),
    case("cat unlike", lambda x, y: torch.cat((x, y, x + 1), dim=0), "n 4", "m 4"),
    case("cat of a part", lambda x: torch.cat((x[..., :2] * 2, x[..., 2:]), dim=-1), "n 8"),
    case("stack", lambda x, y: torch.stack((x, y, x * y), dim=1).reshape(x.shape[0], -1), "n m", "n m"),
    case("table", lambda w, i: F.embedding(i, w) * 2, "5 4", "int64 b n"),
    case("rows", lambda x, i: x[i] + x.index_select(0, i), "5 m", "int64 n"),
    case("movedim", lambda x: x.movedim(0, -1).swapaxes(0, 1).contiguous(), "b n m"),
]
REDUCTIONS = [
    case("sums", lambda x: (x.sum(), x.sum(-1), x.sum((0, 2), keepdim=True), x.sum(dim=1)), "b n m"),
    case("greatest", lambda x: (x.amax(-1), x.amin((0, 1)), x.max(dim=1, keepdim=True).values, x.max()), "b n m"),
    case("means", lambda x: (x.mean(), x.mean(-1, keepdim=True), x.mean((0, 1))), "b n m"),
    case("variance", lambda x: (x.var(-1, unbiased=False), x.var(dim=1, correction=1)), "n 5"),
    case("softmax", lambda x: (x.softmax(-1), F.softmax(x, dim=0), F.log_softmax(x, -1)), "n m"),
    case("logsumexp", lambda x: (x.logsumexp(-1), x.logsumexp((0, 1), keepdim=True)), "n m"),
    case("rms norm", lambda x, w: F.rms_norm(x, (6,), w, 1e-5) + F.rms_norm(x, (6,)), "n 6", "6"),
    case("layer norm", lambda x, w, b: F.layer_norm(x, (6,), w, b) + F.layer_norm(x, (6,)), "b n 6", "6", "6"),
]
CONTRACTIONS = [
    case("matmul", lambda x, y: (x @ y, torch.mm(x, y), x @ y[:, 0], x[0] @ y), "n 5", "5 m"),
    case("batched", lambda x, y: (x @ y, torch.bmm(x, y)), "b n 5", "b 5 m"),
    case("broadcast matmul", lambda x, y: x[:, None] @ y, "b n 5", "3 5 m"),
    case("linear", lambda x, w, b: F.linear(x, w, b) + F.linear(x, w), "b n 5", "7 5", "7"),
    case("addmm", lambda b, x, y: torch.addmm(b, x, y), "m", "n 5", "5 m"),
    case("einsum", lambda x, y: torch.einsum("bnd,bmd->bnm", x, y), "b n 5", "b m 5"),
    case("einsum of heads", lambda x, w: torch.einsum("...d,hde->...he", x, w), "b n 5", "2 5 3"),
    case("einsum without arrow", lambda x, y: torch.einsum("ij,jk", x, y), "n 5", "5 m"),
    case("outer", lambda x, y: torch.outer(x, y), "n", "m"),
    case("masked scores", masked_scores, "b n 5", "b m 5", "bool n m"),
]
ATTENTION = [
    case("plain", sdpa(), "b 2 n 5", "b 2 m 5", "b 2 m 3"),
    case("causal", sdpa(is_causal=True), "b 2 n 5", "b 2 n 5", "b 2 n 3"),
    case("scaled", sdpa(scale=0.3), "b 2 n 5", "b 2 m 5", "b 2 m 5"),
    case(
        "additive mask",
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        "b 2 n 5",
        "b 2 m 5",
        "b 2 m 5",
        "n m",
    ),
    case(
        "mask",
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        "b 2 n 5",
        "b 2 m 5",
        "b 2 m 5",
        "bool b 1 n m",
    ),
    case("grouped", sdpa(enable_gqa=True, is_causal=True), "b 6 n 4", "b 2 n 4", "b 2 n 4"),
    case("one key head", sdpa(enable_gqa=True), "b 6 n 4", "b 1 m 4", "b 1 m 4"),
]
CASES = [*ELEMENTWISE, *LAYOUT, *REDUCTIONS, *CONTRACTIONS, *ATTENTION]


@pytest.mark.parametrize("c", CASES, ids=lambda c: c.name)
def test_operators_agree_with_torch(c: Case, rng: np.random.Generator) -> None:
    made = imported(c)
    assert parse_graph(made.graph.text()) == made.graph
    for sizes in c.sizes:
        args = tensors(c.shapes, sizes, rng)
        compare(interpreted(made, args, sizes), c.function(*args))
