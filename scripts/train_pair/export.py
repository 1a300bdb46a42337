"""Write a checkpoint as a Hugging Face folder in bf16, and read such a folder back.

    export.py WORK_DIR MODELS_DIR target=target draft=draft
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from model import Llama
from shapes import EOT, EOT_ID, Shape
from store import load


def config(s: Shape):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": s.vocab,
        "hidden_size": s.hidden,
        "intermediate_size": s.ffn,
        "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads,
        "head_dim": s.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": s.context,
        "rms_norm_eps": s.norm_eps,
        "rope_theta": s.rope_theta,
        "rope_scaling": None,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": EOT_ID,
        "eos_token_id": EOT_ID,
        "torch_dtype": "bfloat16",
    }


def tokenizer_config(s: Shape):
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": s.context,
        "bos_token": EOT,
        "eos_token": EOT,
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
    }


def write(model: Llama, folder: Path, tokenizer: Path):
    folder.mkdir(parents=True, exist_ok=True)
    weights = {k: v.to(torch.bfloat16).contiguous().cpu() for k, v in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    texts = {
        "config.json": config(model.shape),
        "generation_config.json": {"bos_token_id": EOT_ID, "eos_token_id": EOT_ID, "do_sample": False},
        "tokenizer_config.json": tokenizer_config(model.shape),
    }
    for name, value in texts.items():
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")


def read(folder: Path, dtype=torch.float32) -> Llama:
    c = json.loads((folder / "config.json").read_text())
    model = Llama(Shape(
        hidden=c["hidden_size"], layers=c["num_hidden_layers"], heads=c["num_attention_heads"],
        kv_heads=c["num_key_value_heads"], head_dim=c["head_dim"], ffn=c["intermediate_size"],
        vocab=c["vocab_size"], context=c["max_position_embeddings"],
        rope_theta=c["rope_theta"], norm_eps=c["rms_norm_eps"],
    ))
    model.load_state_dict({k: v.to(dtype) for k, v in load_file(folder / "model.safetensors").items()})
    return model.to(dtype).eval()


def main():
    work, models = Path(sys.argv[1]), Path(sys.argv[2])
    for pair in sys.argv[3:]:
        name, checkpoint = pair.split("=")
        model = load(work / f"{checkpoint}.pt", "cpu")
        write(model, models / name, work / "tokenizer.json")
        print(name, model.size(), "parameters,", (models / name / "model.safetensors").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
