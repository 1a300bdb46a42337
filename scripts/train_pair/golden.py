"""Golden values for the exported pair: `golden.py MODELS_DIR PROMPTS_DIR OUT.json`.

From transformers, on the saved bf16 weights upcast to float64: greedy tokens, top logits at eight
positions, and the smallest gap between the two best logits on the way. From tokenizers: ids of strings
chosen to be awkward.
"""

import json
import sys
from pathlib import Path

import tokenizers
import torch
import transformers
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from hostile import STRINGS

N_NEW, N_POSITIONS, TOP = 48, 8, 5
PROMPTS = (0, 17, 34, 51)  # lines of story-openings.jsonl, from 0


@torch.no_grad()
def run(model, prompt):
    ids, gaps = list(prompt), []
    for _ in range(N_NEW):
        best = model(torch.tensor([ids])).logits[0, -1].topk(2)
        gaps.append((best.values[0] - best.values[1]).item())
        ids.append(best.indices[0].item())
    logits = model(torch.tensor([ids])).logits[0]
    last = len(ids) - 1
    rows = []
    for i in range(N_POSITIONS):
        at = round(i * last / (N_POSITIONS - 1))
        top = logits[at].topk(TOP)
        rows.append({"position": at, "ids": top.indices.tolist(), "logits": top.values.tolist()})
    return {"prompt": prompt, "greedy": ids[len(prompt):], "smallest_gap": min(gaps), "top": rows}


def main():
    models, prompts, out = map(Path, sys.argv[1:])
    tok = Tokenizer.from_file(str(models / "target" / "tokenizer.json"))
    lines = (prompts / "story-openings.jsonl").read_text(encoding="utf-8").splitlines()
    ids = [tok.encode(json.loads(lines[i])["prompt"]).ids for i in PROMPTS]
    golden = {"versions": {m.__name__: m.__version__ for m in (torch, transformers, tokenizers)}, "models": {}}
    for name in ("target", "draft"):
        model = AutoModelForCausalLM.from_pretrained(models / name, dtype=torch.float64, attn_implementation="eager")
        golden["models"][name] = [run(model.eval(), p) for p in ids]
    golden["strings"] = []
    for text in STRINGS:
        enc = tok.encode(text).ids
        golden["strings"].append({"text": text, "ids": enc, "decoded": tok.decode(enc, skip_special_tokens=False)})
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(golden, indent=None, separators=(",", ":")).replace('},{', '},\n{') + "\n")
    for name, runs in golden["models"].items():
        print(name, "smallest gaps", [round(r["smallest_gap"], 5) for r in runs])
    print(len(STRINGS), "strings,", out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
