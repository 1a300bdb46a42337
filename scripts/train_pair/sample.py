"""Write rows sampled from a model after openings of the training text, for distillation.

    sample.py CORPUS_DIR WORK_DIR --model target --rounds 24 --out target-samples.npz

A row is 1024 tokens made of two independent pieces of 512: 32 to 256 tokens of training text, then the
model's own continuation. `warm` holds pieces at temperature 1, `cold` pieces at 0 and at 0.6.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

import data
from sampler import Sampler
from shapes import CONTEXT
from store import device, load, pick_tokenizer

PIECE = CONTEXT // 2
COLD = (0.0, 0.6)


def temperatures(n, warm, dev):
    """Half of a cold round is greedy, half at 0.6."""
    if warm:
        return torch.ones(n, device=dev)
    return torch.tensor(COLD, device=dev).repeat_interleave((n + 1) // 2)[:n]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("corpus")
    ap.add_argument("work", type=Path)
    ap.add_argument("--model", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--warm-rounds", type=int, default=16)
    ap.add_argument("--cold-rounds", type=int, default=16)
    ap.add_argument("--batch", type=int, default=1024)
    ap.add_argument("--seed", type=int, default=7)
    a = ap.parse_args()

    torch.manual_seed(a.seed)
    dev = device()
    ids, _, _ = data.load(pick_tokenizer(a.work), a.corpus, a.work / "tokens.npz")
    sampler = Sampler(load(a.work / f"{a.model}.pt", dev), a.batch, PIECE)
    openings = data.Windows(ids, PIECE // 2, a.batch, dev, a.seed)
    gen = torch.Generator().manual_seed(a.seed)
    kept = {"warm": [], "cold": []}
    for kind, rounds in (("warm", a.warm_rounds), ("cold", a.cold_rounds)):
        for _ in range(rounds):
            given = torch.randint(32, PIECE // 2 + 1, (a.batch,), generator=gen).to(dev)
            heat = temperatures(a.batch, kind == "warm", dev)
            rows = sampler.run(openings.next(), given, heat)
            rows = rows[torch.randperm(a.batch, generator=gen).to(dev)]
            kept[kind].append(rows.view(-1, CONTEXT).cpu().numpy().astype(np.uint16))
    np.savez(a.work / a.out, **{k: np.concatenate(v) for k, v in kept.items() if v})
    print({k: sum(map(len, v)) * CONTEXT for k, v in kept.items()}, "sampled tokens", flush=True)


if __name__ == "__main__":
    main()
