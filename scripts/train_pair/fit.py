"""One training loop for every model: AdamW, warm-up and cosine, early stop on held-out text."""

import json
import math
import time

import torch


def learning_rate(step, steps, peak, warmup):
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup))))


def optimizer(model, lr, decay):
    """Matrices decay, norms do not. The tied embedding is a matrix."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=next(model.parameters()).is_cuda)


def fit(model, batches, loss_of, evaluate, *, steps, lr, decay, warmup=200, eval_every=250, patience=8, log=None):
    """Train in place and leave the weights of the best evaluation in `model`.

    loss_of(ids [B, T]) -> scalar;  evaluate() -> dict with "loss", lower is better.
    Stops early when `patience` evaluations in a row bring no better loss. Returns the record.
    """
    device = next(model.parameters()).device
    opt = optimizer(model, lr, decay)
    best, best_state, since, tokens = None, None, 0, 0
    curve, begin = [], time.time()
    for step in range(steps):
        for group in opt.param_groups:
            group["lr"] = learning_rate(step, steps, lr, warmup)
        model.train()
        ids = batches.next()
        with torch.autocast(device.type, torch.bfloat16):
            loss = loss_of(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        tokens += ids.numel()
        if (step + 1) % eval_every and step + 1 < steps:
            continue
        model.eval()
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
            score = evaluate()
        row = {"step": step + 1, "tokens": tokens, "train": loss.item(), "seconds": time.time() - begin, **score}
        curve.append(row)
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}), flush=True)
        if best is None or score["loss"] < best["loss"]:
            best, since = row, 0
            best_state = {k: v.clone() for k, v in model.state_dict().items()}
        else:
            since += 1
            if since >= patience:
                break
    model.load_state_dict(best_state)
    model.eval()
    record = {"best": best, "curve": curve, "steps_planned": steps, "lr": lr, "weight_decay": decay,
              "dropout": model.dropout, "parameters": model.size(), "seconds": time.time() - begin}
    if log:
        log.write_text(json.dumps(record, indent=1) + "\n")
    return record
