#!/usr/bin/env python3
"""Writes a GGUF file of random blocks at the shape of a known model, to measure packed weights with:

  scripts/random_gguf.py smollm2-135m|llama-3.2-1b|llama-3-8b q8_0|q4_k OUT.gguf
  lockstep bench decode --target OUT.gguf [--device cuda]

Needs Python alone. Architecture llama, tied embedding; the tokenizer is one token a byte, then words of
their own number. The text such a model writes means nothing."""
import os
import struct
import sys

SHAPES = {  # width, feed-forward, layers, heads, key/value heads, head width, tokens
    "smollm2-135m": (576, 1536, 30, 9, 3, 64, 49152),
    "llama-3.2-1b": (2048, 8192, 16, 32, 8, 64, 128256),
    "llama-3-8b": (4096, 14336, 32, 32, 8, 128, 128256),
}
TYPES = {"q8_0": (8, 32, 34), "q4_k": (12, 256, 144)}  # number, elements and bytes of a block
U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def pair(key, kind, value):
    head = text(key) + struct.pack("<I", kind)
    if kind == STRING:
        return head + text(value)
    if kind == ARRAY:
        if value and isinstance(value[0], int):
            return head + struct.pack(f"<IQ{len(value)}i", I32, len(value), *value)
        return head + struct.pack("<IQ", STRING, len(value)) + b"".join(map(text, value))
    return head + struct.pack("<I" if kind == U32 else "<f", value)


def byte_names():
    """Byte-level BPE's name of each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(other)) for b in range(256)]


def block(kind):
    small = struct.pack("<e", 2e-4)
    return small + os.urandom(32) if kind == "q8_0" else small + small + os.urandom(140)


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in SHAPES or sys.argv[2] not in TYPES:
        sys.exit(__doc__)
    dim, ffn, layers, heads, kv, width, vocab = SHAPES[sys.argv[1]]
    number, elements, size = TYPES[sys.argv[2]]
    if dim % elements or ffn % elements:
        sys.exit(f"random_gguf: rows of {dim} and {ffn} are no multiples of {elements}: use q8_0")
    meta = [
        pair("general.architecture", STRING, "llama"),
        pair("llama.block_count", U32, layers), pair("llama.context_length", U32, 8192),
        pair("llama.embedding_length", U32, dim), pair("llama.feed_forward_length", U32, ffn),
        pair("llama.attention.head_count", U32, heads),
        pair("llama.attention.head_count_kv", U32, kv),
        pair("llama.attention.key_length", U32, width),
        pair("llama.attention.value_length", U32, width),
        pair("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        pair("llama.rope.freq_base", F32, 1e4),
        pair("tokenizer.ggml.model", STRING, "gpt2"), pair("tokenizer.ggml.pre", STRING, "smollm"),
        pair("tokenizer.ggml.tokens", ARRAY, byte_names() + [f"<{i}>" for i in range(256, vocab)]),
        pair("tokenizer.ggml.token_type", ARRAY, [1] * vocab),
        pair("tokenizer.ggml.merges", ARRAY, []),
    ]
    norm, mat = (lambda n: ([n], None)), (lambda n_out, n_in: ([n_in, n_out], number))
    tensors = [("token_embd.weight", mat(vocab, dim)), ("output_norm.weight", norm(dim))]
    for i in range(layers):
        tensors += [(f"blk.{i}.{name}.weight", t) for name, t in (
            ("attn_norm", norm(dim)), ("attn_q", mat(heads * width, dim)),
            ("attn_k", mat(kv * width, dim)), ("attn_v", mat(kv * width, dim)),
            ("attn_output", mat(dim, heads * width)), ("ffn_norm", norm(dim)),
            ("ffn_gate", mat(ffn, dim)), ("ffn_up", mat(ffn, dim)), ("ffn_down", mat(dim, ffn)))]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta)) + b"".join(meta)
    at, sizes = 0, []
    for name, (shape, kind) in tensors:
        head += text(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}QIQ", *shape, 0 if kind is None else kind, at)
        sizes.append(4 * shape[0] if kind is None else shape[0] * shape[1] // elements * size)
        at += (sizes[-1] + 31) // 32 * 32
    blocks = b"".join(block(sys.argv[2]) for _ in range(20000))
    with open(sys.argv[3], "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32))
        for (_, (shape, kind)), n in zip(tensors, sizes):
            if kind is None:
                f.write(struct.pack("<f", 1.0) * shape[0])
            for done in range(0, n if kind is not None else 0, len(blocks)):
                f.write(blocks[:min(len(blocks), n - done)])
            f.write(b"\0" * (-n % 32))


main()
