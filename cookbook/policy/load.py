"""Load: a model's name or path -> a causal language model and its tokenizer.

In:  "tiny", a folder, or a name that transformers can load.     Out: model (eval mode, fp32 on CPU), tokenizer.
Leaves out: quantised loading.
"""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cookbook.paths import data_dir


def find_model(name: str) -> str:
    """What transformers should load: the shipped folder for "tiny", else the name itself."""
    if name == "tiny":
        folder = data_dir() / "models" / "tiny"
        if not (folder / "model.safetensors").is_file():
            raise ValueError(f"the tiny model is not at {folder}: make it with `make models`, or name another model")
        return str(folder)
    return name


def load_model(name: str, device: str | torch.device = "cpu"):
    """The model and its tokenizer.

    Raises ValueError that names the model and the way out when it is not on this machine and cannot be fetched.
    """
    place = find_model(name)
    if not Path(place).is_dir() and place.startswith((".", "/", "~")):
        raise ValueError(f"no model folder {name!r}: give the path of a folder with config.json and weights")
    device = torch.device(device)
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    try:
        tokenizer = AutoTokenizer.from_pretrained(place)
        model = AutoModelForCausalLM.from_pretrained(place, dtype=dtype, attn_implementation="sdpa")
    except (OSError, ValueError, ImportError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"model {name!r} could not be loaded ({reason}): use tiny, the path of a saved model,"
            " or a Hub name on a machine that can download it or has it in its cache"
        ) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model.to(device).eval(), tokenizer
