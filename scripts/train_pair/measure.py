"""Measure an exported pair: held-out loss, acceptance under three rules, and sample continuations.

    measure.py CORPUS_DIR MODELS_DIR PROMPTS_DIR OUT.json [--new 256] [--depth 4]

Weights are the exported bf16 ones, arithmetic is float32.
"""

import argparse
import json
import math
from pathlib import Path

import torch

import data
from export import read
from shapes import CONTEXT
from speculate import Tally, loop_onset, simulate
from store import device
from tokenizers import Tokenizer
from train import cross_entropy, mean_over

SETS = ("story-openings", "mt-bench", "gsm8k", "humaneval")


def heldout_figures(model, windows, n_bytes, n_tokens):
    loss = mean_over(windows, lambda w: cross_entropy(model(w), w), batch=8)
    bits_per_byte = loss / math.log(2) * n_tokens / n_bytes
    return {"loss": round(loss, 4), "perplexity": round(math.exp(loss), 2), "bits_per_byte": round(bits_per_byte, 4)}


def acceptance(target, draft, prompts, a, rule):
    """Figures for each prompt set and for all, and the continuations."""
    flat = [(name, p) for name, ps in prompts.items() for p in ps]
    texts, rounds = simulate(target, draft, [p for _, p in flat], a.new, a.depth, rule, a.seed)
    tallies = {name: Tally() for name in [*prompts, "all", "all before the first repeat"]}
    for (name, _), text, rs in zip(flat, texts, rounds):
        onset = loop_onset(text)
        for first, n_accept, committed, overlap in rs:
            names = [name, "all"] + (["all before the first repeat"] if first + committed <= onset else [])
            for t in names:
                tallies[t].add(n_accept, a.depth, committed, overlap)
    figures = {name: t.figures() for name, t in tallies.items()}
    figures["repeat"] = {
        "share_of_texts_with_a_repeat": round(sum(loop_onset(t) < len(t) for t in texts) / len(texts), 4),
        "median_onset_token": sorted(map(loop_onset, texts))[len(texts) // 2],
    }
    return figures, texts


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("corpus")
    ap.add_argument("models", type=Path)
    ap.add_argument("prompts", type=Path)
    ap.add_argument("out", type=Path)
    ap.add_argument("--new", type=int, default=256)
    ap.add_argument("--depth", type=int, default=4)
    ap.add_argument("--seed", type=int, default=11)
    a = ap.parse_args()

    torch.backends.cuda.matmul.allow_tf32 = False
    dev = device()
    target, draft = (read(a.models / name).to(dev).eval() for name in ("target", "draft"))
    tok = Tokenizer.from_file(str(a.models / "target" / "tokenizer.json"))
    lines = {s: [json.loads(x) for x in (a.prompts / f"{s}.jsonl").read_text().splitlines()] for s in SETS}
    prompts = {s: [tok.encode(x["prompt"]).ids for x in xs] for s, xs in lines.items()}

    docs = data.documents(data.heldout(a.corpus))
    held = data.encode(tok, docs)
    windows, n_bytes = data.chunks(held, CONTEXT, dev), sum(len(d.encode()) for d in docs)
    record = {"new_tokens": a.new, "depth": a.depth, "prompts": {s: len(p) for s, p in prompts.items()}}
    with torch.no_grad():
        for name, model in (("target", target), ("draft", draft)):
            record[name] = {"parameters": model.size(), **heldout_figures(model, windows, n_bytes, len(held))}
    for rule in ("greedy", "rejection", "coupled"):
        record[rule], texts = acceptance(target, draft, prompts, a, rule)
        record[rule]["samples"] = [
            {"prompt": tok.decode(p), "text": tok.decode(t)} for p, t in zip(prompts["story-openings"][:60:12], texts[:60:12])
        ]
    a.out.write_text(json.dumps(record, indent=1) + "\n")
    for rule in ("greedy", "rejection", "coupled"):
        for name, f in record[rule].items():
            if name != "samples":
                print(rule, "|", name, "|", f)
    print({k: record[k] for k in ("target", "draft")})


if __name__ == "__main__":
    main()
