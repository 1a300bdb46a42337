"""Train a model on the corpus by next-token cross entropy: a teacher, or a target without teachers.

    train.py CORPUS_DIR WORK_DIR --shape wide --name teacher-wide --dropout 0.2 --steps 4000
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F

import data
from fit import fit
from model import Llama
from shapes import CONTEXT, SHAPES
from store import compiled, device, pick_tokenizer, save


def cross_entropy(logits, ids):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def mean_over(windows, loss_of, batch=32):
    """Mean of `loss_of` over windows [n, T], every window with the same weight."""
    return sum(loss_of(w).item() * len(w) for w in windows.split(batch)) / len(windows)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("corpus")
    ap.add_argument("work", type=Path)
    ap.add_argument("--shape", default="target")
    ap.add_argument("--name", required=True)
    ap.add_argument("--dropout", type=float, default=0.1)
    ap.add_argument("--steps", type=int, default=4000)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--decay", type=float, default=0.1)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()

    torch.manual_seed(a.seed)
    torch.set_float32_matmul_precision("high")
    dev = device()
    train_ids, held_ids, _ = data.load(pick_tokenizer(a.work), a.corpus, a.work / "tokens.npz")
    held = data.chunks(held_ids, CONTEXT, dev)
    model = Llama(SHAPES[a.shape], a.dropout, a.seed).to(dev)
    loss_of = compiled(lambda ids: cross_entropy(model(ids), ids), dev)
    print(f"{a.name}: {model.size()} parameters, {len(train_ids)} training tokens, {len(held_ids)} held out", flush=True)
    fit(
        model,
        data.Windows(train_ids, CONTEXT, a.batch, dev, a.seed),
        loss_of,
        lambda: {"loss": mean_over(held, lambda w: cross_entropy(model(w), w))},
        steps=a.steps, lr=a.lr, decay=a.decay, log=a.work / f"{a.name}.json",
    )
    save(model, a.work / f"{a.name}.pt")


if __name__ == "__main__":
    main()
