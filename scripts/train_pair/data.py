"""The corpus as token ids, and batches of windows cut from it.

A corpus folder holds `prose-NN.txt.xz` (training) and `prose-heldout.txt.xz`: UTF-8 text, documents
separated by a line that holds only `<|endoftext|>`. Documents are joined by that one id.
"""

import lzma
from pathlib import Path

import numpy as np
import torch

from shapes import EOT, EOT_ID


def shards(corpus) -> list[Path]:
    found = sorted(p for p in Path(corpus).glob("prose-*.txt.xz") if "heldout" not in p.name)
    if not found:
        raise SystemExit(f"{corpus}: no prose-NN.txt.xz in this folder (see README.md for the format)")
    return found


def heldout(corpus) -> Path:
    return Path(corpus) / "prose-heldout.txt.xz"


def documents(path) -> list[str]:
    text = lzma.open(path, "rt", encoding="utf-8", newline="\n").read()
    return [doc for doc in (part.strip("\n") for part in text.split(EOT)) if doc]


def encode(tok, docs) -> np.ndarray:
    """Token ids of the documents, each followed by end-of-text; uint16."""
    ids = []
    for enc in tok.encode_batch(docs):
        ids.append(np.asarray(enc.ids + [EOT_ID], dtype=np.uint16))
    return np.concatenate(ids)


def load(tok, corpus, cache=None):
    """(training ids, held-out ids, held-out bytes); encoded once if `cache` names a file."""
    if cache and Path(cache).exists():
        z = np.load(cache)
        return z["train"], z["held"], int(z["held_bytes"])
    train = np.concatenate([encode(tok, documents(p)) for p in shards(corpus)])
    held_docs = documents(heldout(corpus))
    held = encode(tok, held_docs)
    held_bytes = sum(len(d.encode()) for d in held_docs)
    if cache:
        np.savez(cache, train=train, held=held, held_bytes=held_bytes)
    return train, held, held_bytes


class Windows:
    """Endless batches [batch, length] of long ids: every epoch a new shift, every window once."""

    def __init__(self, ids, length, batch, device, seed):
        self.ids = torch.from_numpy(ids.astype(np.int32)).to(device)
        self.length, self.batch = length, batch
        self.gen = torch.Generator().manual_seed(seed)
        self.order, self.at = None, 0

    def _epoch(self):
        shift = int(torch.randint(self.length, (1,), generator=self.gen))
        starts = torch.arange(shift, len(self.ids) - self.length, self.length)
        self.order = starts[torch.randperm(len(starts), generator=self.gen)].to(self.ids.device)
        self.at = 0

    def next(self):
        if self.order is None or self.at + self.batch > len(self.order):
            self._epoch()
        starts = self.order[self.at : self.at + self.batch]
        self.at += self.batch
        at = starts[:, None] + torch.arange(self.length, device=starts.device)
        return self.ids[at].long()


class Rows:
    """Endless batches of whole rows from an array [n, length], reshuffled every epoch."""

    def __init__(self, rows, batch, device, seed):
        self.rows = torch.from_numpy(rows.astype(np.int32)).to(device)
        self.batch = batch
        self.gen = torch.Generator().manual_seed(seed)
        self.order, self.at = None, 0

    def next(self):
        if self.order is None or self.at + self.batch > len(self.order):
            self.order = torch.randperm(len(self.rows), generator=self.gen).to(self.rows.device)
            self.at = 0
        pick = self.order[self.at : self.at + self.batch]
        self.at += self.batch
        return self.rows[pick].long()


class Mix:
    """Several sources side by side in one batch."""

    def __init__(self, *sources):
        self.sources = sources

    def next(self):
        return torch.cat([s.next() for s in self.sources])


def chunks(ids, length, device):
    """Consecutive windows that cover `ids`, for evaluation: [n, length] (the last partial one dropped)."""
    n = len(ids) // length
    return torch.from_numpy(ids[: n * length].astype(np.int64)).view(n, length).to(device)
