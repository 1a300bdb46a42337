"""Speculative decoding with a chain of drafts, simulated for many prompts at once.

No cache: each pass recomputes the whole prefix, so what is counted depends on the models alone. Rules:
  greedy     a draft stands iff it is the target's argmax
  rejection  a draft x stands with probability min(1, p_target(x) / p_draft(x)), else the position is
             drawn from the normalised (p_target - p_draft)+
  coupled    both models take the Gumbel-max of the same numbers at a position; a draft stands iff equal
"""

from dataclasses import dataclass, field

import torch

from shapes import EOT_ID


@dataclass
class Tally:
    """Counts over rounds. A round commits its accepted drafts and one token of the target."""

    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    rejected_rounds: int = 0
    committed: int = 0
    overlap: float = 0.0  # sum of min(p_target, p_draft) over the drafts that were judged
    judged: int = 0
    by_depth: list = field(default_factory=list)  # rounds in which at least i + 1 drafts stood

    def add(self, n_accept, depth, committed, overlap):
        self.rounds += 1
        self.proposed += depth
        self.accepted += n_accept
        self.rejected_rounds += n_accept < depth
        self.committed += committed
        judged = min(n_accept + 1, depth)
        self.overlap += sum(overlap[:judged])
        self.judged += judged
        self.by_depth = self.by_depth or [0] * depth
        for i in range(n_accept):
            self.by_depth[i] += 1

    def figures(self):
        return {
            "rounds": self.rounds,
            "acceptance": round(self.accepted / max(1, self.accepted + self.rejected_rounds), 4),
            "accepted_share": round(self.accepted / max(1, self.proposed), 4),
            "tokens_per_target_pass": round(self.committed / max(1, self.rounds), 4),
            "mean_overlap": round(self.overlap / max(1, self.judged), 4),
            "reached_depth": [round(n / max(1, self.rounds), 4) for n in self.by_depth],
        }


def gumbel(rows, length, vocab, seed, dev):
    gen = torch.Generator(dev).manual_seed(seed)
    return -torch.empty(rows, length, vocab, device=dev).exponential_(generator=gen).log()


@torch.no_grad()
def simulate(target, draft, prompts, n_new, depth, rule, seed=0, batch=64):
    """Continue every prompt (a list of ids) by `n_new` tokens or to end-of-text.

    Returns (continuations, rounds): per prompt its new ids, and its rounds as tuples
    (position of the first draft in the continuation, accepted, committed, overlaps).
    """
    texts, rounds = [], []
    for at in range(0, len(prompts), batch):
        t, r = _simulate(target, draft, prompts[at : at + batch], n_new, depth, rule, seed + at)
        texts += t
        rounds += r
    return texts, rounds


def _simulate(target, draft, prompts, n_new, depth, rule, seed):
    dev = target.cos.device
    n = len(prompts)
    start = torch.tensor([len(p) for p in prompts], device=dev)
    room = int(start.max()) + n_new + depth + 1
    ids = torch.zeros(n, room, dtype=torch.long, device=dev)
    for i, p in enumerate(prompts):
        ids[i, : len(p)] = torch.tensor(p, device=dev)
    end = start.clone()  # committed length
    done = torch.zeros(n, dtype=torch.bool, device=dev)
    gen = torch.Generator(dev).manual_seed(seed)
    noise = gumbel(n, n_new + depth + 1, target.shape.vocab, seed, dev) if rule == "coupled" else None
    row = torch.arange(n, device=dev)
    rounds = [[] for _ in prompts]

    def draw(logits, at):
        """One token a row from logits [n, V], for absolute positions at [n]."""
        if rule == "greedy":
            return logits.argmax(-1)
        if rule == "coupled":
            return (logits + noise[row, (at - start).clamp(0, noise.shape[1] - 1)]).argmax(-1)
        return torch.multinomial(logits.softmax(-1), 1, generator=gen)[:, 0]

    while not bool(done.all()):
        used = int(end.max())
        drafts, q = [], []
        for k in range(depth):
            logits = draft(ids[:, : used + k])[row, end + k - 1].float()
            token = draw(logits, end + k)
            ids[row, end + k] = token
            drafts.append(token)
            q.append(logits.softmax(-1))
        out = target(ids[:, : used + depth])
        at = end[:, None] - 1 + torch.arange(depth + 1, device=dev)
        logits = out[row[:, None], at].float()  # [n, depth + 1, V]
        p = logits.softmax(-1)
        stands, replace = [], []
        for k in range(depth):
            if rule == "rejection":
                x = drafts[k][:, None]
                ratio = (p[:, k].gather(1, x) / q[k].gather(1, x))[:, 0]
                stands.append(torch.rand(n, device=dev, generator=gen) < ratio)
                rest = (p[:, k] - q[k]).clamp(min=0)
                rest = torch.where(rest.sum(-1, keepdim=True) > 0, rest, p[:, k])
                replace.append(torch.multinomial(rest, 1, generator=gen)[:, 0])
            else:
                token = draw(logits[:, k], end + k)
                stands.append(token == drafts[k])
                replace.append(token)
        replace.append(draw(logits[:, depth], end + depth))
        overlap = torch.stack([torch.minimum(p[:, k], q[k]).sum(-1) for k in range(depth)], 1).tolist()
        n_accept = torch.stack(stands, 1).long().cumprod(1).sum(1)
        ids[row, end + n_accept] = torch.stack(replace, 1)[row, n_accept]
        for i, (a, was, over) in enumerate(zip(n_accept.tolist(), end.tolist(), done.tolist())):
            if over:
                continue
            new = ids[i, was : was + a + 1].tolist()
            if EOT_ID in new:
                new = new[: new.index(EOT_ID) + 1]
            first = was - int(start[i])
            new = new[: n_new - first]
            rounds[i].append((first, a, len(new), overlap[i]))
            end[i] = was + len(new)
            done[i] = new[-1] == EOT_ID or first + len(new) >= n_new
    texts = [ids[i, start[i] : end[i]].tolist() for i in range(n)]
    return texts, rounds


def loop_onset(new, width=12):
    """Index of the first token at which the last `width` tokens occurred before, or len(new)."""
    seen = set()
    for i in range(width, len(new) + 1):
        gram = tuple(new[i - width : i])
        if gram in seen:
            return i
        seen.add(gram)
    return len(new)
