"""Batched generation with a static cache; on a GPU one step is one CUDA graph, replayed.

Every row begins with its own number of given tokens and has its own temperature (0 is greedy), so a
single step serves prompts and continuations alike. Choosing is Gumbel-max over the logits.
"""

import copy

import torch
import torch.nn.functional as F

from model import Llama


class Sampler:
    def __init__(self, model: Llama, batch, length, dtype=torch.bfloat16):
        self.model = copy.deepcopy(model).to(dtype).eval()
        self.model.cos, self.model.sin = model.cos, model.sin  # tables stay in float32
        s, dev = model.shape, model.cos.device
        self.length = length
        self.tokens = torch.zeros(batch, length, dtype=torch.long, device=dev)
        self.given = torch.ones(batch, dtype=torch.long, device=dev)
        self.temperature = torch.ones(batch, 1, device=dev)
        self.pos = torch.zeros(1, dtype=torch.long, device=dev)
        self.span = torch.arange(length, device=dev)
        self.cache = [
            tuple(torch.zeros(batch, s.kv_heads, length, s.head_dim, dtype=dtype, device=dev) for _ in "kv")
            for _ in range(s.layers)
        ]
        self.graph = None

    def _attend(self, attn, x, cos, sin, cache):
        s = self.model.shape
        q, k, v = attn.qkv(x, cos, sin)
        keys, values = cache
        keys.index_copy_(2, self.pos, k)
        values.index_copy_(2, self.pos, v)
        q = q.view(len(x), s.kv_heads, s.heads // s.kv_heads, s.head_dim)
        score = (q @ keys.transpose(2, 3)).float() * s.head_dim**-0.5
        score = score.masked_fill(self.span > self.pos, float("-inf"))
        return attn.o_proj((score.softmax(-1).to(values.dtype) @ values).reshape(len(x), 1, -1))

    def _step(self):
        body = self.model.model
        cos, sin = self.model.cos.index_select(0, self.pos), self.model.sin.index_select(0, self.pos)
        x = body.embed_tokens(self.tokens.index_select(1, self.pos))
        for block, cache in zip(body.layers, self.cache):
            x = x + self._attend(block.self_attn, block.input_layernorm(x), cos, sin, cache)
            x = x + block.mlp(block.post_attention_layernorm(x))
        logits = F.linear(body.norm(x), body.embed_tokens.weight)[:, 0].float()
        gumbel = -torch.empty_like(logits).exponential_().log()
        chosen = (logits + self.temperature * gumbel).argmax(-1, keepdim=True)
        ahead = self.pos + 1
        kept = self.tokens.index_select(1, ahead)
        self.tokens.index_copy_(1, ahead, torch.where(ahead < self.given[:, None], kept, chosen))
        self.pos += 1

    def _capture(self):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.pos.zero_()
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._step()

    @torch.no_grad()
    def run(self, prompts, given, temperature):
        """prompts [B, <=length] long, given [B], temperature [B] -> tokens [B, length]."""
        if self.tokens.is_cuda and self.graph is None:
            self._capture()
        self.tokens.zero_()
        self.tokens[:, : prompts.shape[1]] = prompts
        self.given.copy_(given)
        self.temperature.copy_(temperature[:, None])
        self.pos.zero_()
        for _ in range(self.length - 1):
            self.graph.replay() if self.graph else self._step()
        return self.tokens.clone()
