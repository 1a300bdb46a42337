"""Model shapes and vocabulary facts shared by every script.

A shape is what `LlamaForCausalLM` needs to know. Hidden sizes are multiples of 32, head sizes 32 or 64.
`TARGET` and `DRAFT` are what ships; `TEACHERS` are trained first and only ever seen by distillation.
"""

from dataclasses import dataclass

VOCAB = 4096
EOT = "<|endoftext|>"
EOT_ID = 0
CONTEXT = 1024


@dataclass(frozen=True)
class Shape:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int = VOCAB
    context: int = CONTEXT
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5


TARGET = Shape(hidden=384, layers=6, heads=6, kv_heads=2, head_dim=64, ffn=1024)
DRAFT = Shape(hidden=128, layers=2, heads=4, kv_heads=2, head_dim=32, ffn=480)
WIDE = Shape(hidden=512, layers=8, heads=8, kv_heads=8, head_dim=64, ffn=1408)
TINY = Shape(hidden=32, layers=2, heads=2, kv_heads=1, head_dim=16, ffn=64)  # for trying the scripts

SHAPES = {"target": TARGET, "draft": DRAFT, "wide": WIDE, "tiny": TINY}
