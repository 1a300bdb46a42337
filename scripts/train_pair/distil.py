"""Train a student on the token distributions of one or several teachers.

    distil.py CORPUS_DIR WORK_DIR --teachers target --shape draft --name draft --samples target-samples.npz

The loss is cross entropy against the mean of the teachers' distributions, plus `--text` times the cross
entropy against the text itself and `--argmax` times that against the teachers' likeliest token. Batches
mix windows of the corpus with rows sampled from a teacher (see sample.py), if any are given.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import data
from fit import fit
from model import Llama
from shapes import CONTEXT, SHAPES
from store import compiled, device, load, pick_tokenizer, save
from train import cross_entropy, mean_over


def ensemble(teachers, ids):
    """Mean of the teachers' next-token distributions, [B, T - 1, V] float32."""
    with torch.no_grad():
        p = sum(t(ids)[:, :-1].float().softmax(-1) for t in teachers)
        return p / len(teachers)


def student_loss(student, teachers, ids, text, argmax):
    p_teacher = ensemble(teachers, ids)
    log_p = student(ids)[:, :-1].float().log_softmax(-1)
    loss = -(p_teacher * log_p).sum(-1).mean()
    if text:
        loss = loss - text * log_p.gather(-1, ids[:, 1:, None]).mean()
    if argmax:
        loss = loss - argmax * log_p.gather(-1, p_teacher.argmax(-1, keepdim=True)).mean()
    return loss


def agreement(student, teachers, ids):
    """(share of equal argmax, mean sum of min(p, q)) as one tensor [2]."""
    p, q = ensemble(teachers, ids), student(ids)[:, :-1].float().softmax(-1)
    same = (p.argmax(-1) == q.argmax(-1)).float().mean()
    return torch.stack([same, torch.minimum(p, q).sum(-1).mean()])


def sources(a, ids, dev):
    """Corpus windows, and sampled rows warm and cold, by the shares in --mix."""
    corpus, warm, cold = a.mix
    mixed = [data.Windows(ids, CONTEXT, corpus, dev, a.seed)]
    if a.samples:
        rows = np.load(a.work / a.samples)
        mixed += [data.Rows(rows[k], n, dev, a.seed) for k, n in (("warm", warm), ("cold", cold)) if n]
    return data.Mix(*mixed)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("corpus")
    ap.add_argument("work", type=Path)
    ap.add_argument("--teachers", nargs="+", required=True)
    ap.add_argument("--shape", default="draft")
    ap.add_argument("--name", required=True)
    ap.add_argument("--samples")
    ap.add_argument("--mix", nargs=3, type=int, default=[64, 0, 0], metavar=("CORPUS", "WARM", "COLD"))
    ap.add_argument("--text", type=float, default=0.0)
    ap.add_argument("--argmax", type=float, default=0.0)
    ap.add_argument("--dropout", type=float, default=0.0)
    ap.add_argument("--steps", type=int, default=6000)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--decay", type=float, default=0.1)
    ap.add_argument("--seed", type=int, default=2)
    a = ap.parse_args()

    torch.manual_seed(a.seed)
    torch.set_float32_matmul_precision("high")
    dev = device()
    train_ids, held_ids, _ = data.load(pick_tokenizer(a.work), a.corpus, a.work / "tokens.npz")
    held = data.chunks(held_ids, CONTEXT, dev)
    teachers = [load(a.work / f"{name}.pt", dev) for name in a.teachers]
    student = Llama(SHAPES[a.shape], a.dropout, a.seed).to(dev)
    print(f"{a.name}: {student.size()} parameters, teachers {a.teachers}", flush=True)

    train_loss = compiled(lambda ids: student_loss(student, teachers, ids, a.text, a.argmax), dev)

    def evaluate():
        same, overlap = torch.stack([agreement(student, teachers, w) for w in held[:96].split(16)]).mean(0).tolist()
        return {"loss": mean_over(held, lambda w: cross_entropy(student(w), w)), "same_argmax": same, "overlap": overlap}

    fit(
        student, sources(a, train_ids, dev), train_loss, evaluate,
        steps=a.steps, lr=a.lr, decay=a.decay, log=a.work / f"{a.name}.json",
    )
    save(student, a.work / f"{a.name}.pt")


if __name__ == "__main__":
    main()
