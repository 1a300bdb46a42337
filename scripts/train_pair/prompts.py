"""Choose the experiment prompts: `prompts.py SOURCE_DIR TOKENIZER OUT_DIR`.

All story openings, and 20 of each other set, evenly spaced in file order among the prompts of at most
400 tokens. Lines are copied as they are.
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer

LIMIT = 400
TAKE = {"story-openings": None, "mt-bench": 20, "gsm8k": 20, "humaneval": 20}


def choose(lines, take):
    if take is None:
        return lines
    return [lines[i * len(lines) // take] for i in range(take)]


def main():
    source, tok, out = Path(sys.argv[1]), Tokenizer.from_file(sys.argv[2]), Path(sys.argv[3])
    for name, take in TAKE.items():
        lines = (source / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
        fit = [x for x in lines if len(tok.encode(json.loads(x)["prompt"]).ids) <= LIMIT]
        chosen = choose(fit, take)
        (out / f"{name}.jsonl").write_text("".join(x + "\n" for x in chosen), encoding="utf-8")
        print(f"{name}: {len(chosen)} of {len(lines)}, {len(lines) - len(fit)} over {LIMIT} tokens left out")


if __name__ == "__main__":
    main()
