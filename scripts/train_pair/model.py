"""Llama as plain PyTorch, with the parameter names of Hugging Face's `LlamaForCausalLM`.

Tied embeddings, grouped-query attention, rotary embedding in the rotate-half convention, no biases.
Dropout (training only) is on the embedding and on both residual branches.
"""

import torch
import torch.nn.functional as F
from torch import nn

from shapes import Shape


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        y = x.float() if x.dtype != torch.float64 else x
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


def rope_tables(shape: Shape, device, dtype=torch.float32):
    """cos and sin, each [context, head_dim], angles taken in double."""
    freq = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
    angle = torch.arange(shape.context, dtype=torch.float64)[:, None] * freq
    angle = torch.cat([angle, angle], dim=-1).to(device)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return (x * cos + turned * sin).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        self.q_proj = nn.Linear(s.hidden, s.heads * s.head_dim, bias=False)
        self.k_proj = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=False)
        self.v_proj = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=False)
        self.o_proj = nn.Linear(s.heads * s.head_dim, s.hidden, bias=False)

    def qkv(self, x, cos, sin):
        """[B, T, D] -> q [B, H, T, E], k and v [B, G, T, E], rotated."""
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.s.heads, self.s.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.s.kv_heads, self.s.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.s.kv_heads, self.s.head_dim).transpose(1, 2)
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q, k, v = self.qkv(x, cos, sin)
        group = self.s.heads // self.s.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.gate_proj = nn.Linear(s.hidden, s.ffn, bias=False)
        self.up_proj = nn.Linear(s.hidden, s.ffn, bias=False)
        self.down_proj = nn.Linear(s.ffn, s.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.input_layernorm = RMSNorm(s.hidden, s.norm_eps)
        self.self_attn = Attention(s)
        self.post_attention_layernorm = RMSNorm(s.hidden, s.norm_eps)
        self.mlp = MLP(s)

    def forward(self, x, cos, sin, drop):
        x = x + F.dropout(self.self_attn(self.input_layernorm(x), cos, sin), drop, self.training)
        return x + F.dropout(self.mlp(self.post_attention_layernorm(x)), drop, self.training)


class Body(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(s.vocab, s.hidden)
        self.layers = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.norm = RMSNorm(s.hidden, s.norm_eps)


class Llama(nn.Module):
    def __init__(self, shape: Shape, dropout=0.0, seed=0):
        super().__init__()
        self.shape, self.dropout = shape, dropout
        self.model = Body(shape)
        cos, sin = rope_tables(shape, "cpu")
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._init(seed)

    def _init(self, seed):
        gen = torch.Generator().manual_seed(seed)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                branch_end = name.endswith(("o_proj.weight", "down_proj.weight"))
                std = 0.02 / (2 * self.shape.layers) ** 0.5 if branch_end else 0.02
                nn.init.normal_(p, std=std, generator=gen)

    def forward(self, ids):
        """[B, T] long -> logits [B, T, V]."""
        t = ids.shape[1]
        cos, sin = self.cos[:t], self.sin[:t]
        x = F.dropout(self.model.embed_tokens(ids), self.dropout, self.training)
        for block in self.model.layers:
            x = block(x, cos, sin, self.dropout)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)

    def size(self):
        return sum(p.numel() for p in self.parameters())
