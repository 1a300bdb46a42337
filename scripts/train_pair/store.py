"""Working files: checkpoints between the stages, and where the work runs."""

from dataclasses import asdict
from pathlib import Path

import torch
from tokenizers import Tokenizer

from model import Llama
from shapes import Shape


def device():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def compiled(function, dev):
    return torch.compile(function) if dev.type == "cuda" else function


def pick_tokenizer(work) -> Tokenizer:
    return Tokenizer.from_file(str(Path(work) / "tokenizer.json"))


def save(model, path):
    torch.save({"shape": asdict(model.shape), "state": model.state_dict()}, path)


def load(path, dev, dropout=0.0) -> Llama:
    kept = torch.load(path, map_location="cpu", weights_only=True)
    model = Llama(Shape(**kept["shape"]), dropout)
    model.load_state_dict(kept["state"])
    return model.to(dev).eval()
