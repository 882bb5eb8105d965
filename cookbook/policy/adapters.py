"""Adapters: one frozen base in memory, three LoRA adapters on it.

In:  a causal LM.     Out: Policy with the roles "policy", "critic" (with a value head) and "reference".
Leaves out: merging for good; nothing is merged into the base, so the same holds on a 4-bit base.
Source: Hu et al. 2021 (LoRA), through peft.
"""

import contextlib
import copy
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

ROLES = ("policy", "critic", "reference")


@dataclass(frozen=True)
class LoraSettings:
    """What the three adapters look like."""

    rank: int = 16
    """size of the low-rank update"""
    alpha: int = 32
    """the update is scaled by alpha / rank"""

    def __post_init__(self):
        for name, value in asdict(self).items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"lora {name}={value!r}: a whole number of at least 1")


class Policy:
    """A frozen base with three adapters. One role is active at a time; forward and backward one role at a time."""

    def __init__(self, model, tokenizer, lora: LoraSettings | None = None, seed: int = 0):
        self.tokenizer, self.lora = tokenizer, lora or LoraSettings()
        config = LoraConfig(r=self.lora.rank, lora_alpha=self.lora.alpha, lora_dropout=0.0, target_modules="all-linear")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.peft = get_peft_model(model, config, adapter_name="policy")
            self.peft.add_adapter("critic", config)
            self.peft.add_adapter("reference", config)
        self.model = self.peft.get_base_model()
        self.model.config.use_cache = False
        """the causal LM itself, adapters inside its layers"""
        self.value_head = nn.Linear(model.config.hidden_size, 1, device=self.device, dtype=torch.float32)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)
        self._sampler = None
        self.use("policy")

    @property
    def device(self) -> torch.device:
        """Where the base lies."""
        return self.model.device

    def use(self, role: str) -> "Policy":
        """Make one role active. peft turns gradients off on the others; they are set here for each role anew."""
        if role not in ROLES:
            raise ValueError(f"no role {role!r}: use one of {', '.join(ROLES)}")
        self.peft.set_adapter(role, inference_mode=role == "reference")
        self.peft.eval()
        return self

    def parameters(self, role: str) -> dict[str, Tensor]:
        """The role's own weights by name; the critic's include its value head."""
        own = {name: p for name, p in self.peft.named_parameters() if f".{role}." in name}
        if role == "critic":
            own |= {f"value_head.{name}": p for name, p in self.value_head.named_parameters()}
        return own

    def copy_adapter(self, source: str, target: str) -> None:
        """Make target's weights those of source: the reference after SFT, the critic's start."""
        sources = self.parameters(source)
        with torch.no_grad():
            for name, parameter in self.parameters(target).items():
                if not name.startswith("value_head"):
                    parameter.copy_(sources[name.replace(f".{target}.", f".{source}.")])

    @contextlib.contextmanager
    def sampling(self, role: str = "policy"):
        """A causal LM to sample from: eval mode, no gradients.

        On CPU the adapter is merged into a second copy of the weights, so that every token costs one matrix product a
        layer, not three; elsewhere the adapters themselves are used.
        """
        with torch.inference_mode():
            self.use(role)
            if self.device.type != "cpu":
                yield self.model
            else:
                yield self._merged(role)
        self.use("policy")

    def _merged(self, role: str):
        if self._sampler is None:
            self._sampler = unwrapped_copy(self.model)
        plain = dict(self._sampler.named_modules())
        for name, layer in self.model.named_modules():
            if isinstance(layer, LoraLayer):
                plain[name].weight.copy_(layer.base_layer.weight + layer.get_delta_weight(role))
        return self._sampler

    def save(self, folder: str | Path) -> None:
        """Adapters and value head, in one safetensors file beside a small JSON."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: p.detach().cpu().contiguous() for role in ROLES for name, p in self.parameters(role).items()}
        save_file(weights, folder / "adapters.safetensors")
        (folder / "adapters.json").write_text(json.dumps({"lora": asdict(self.lora)}))

    def load(self, folder: str | Path) -> "Policy":
        """What `save` wrote. Raises ValueError naming the file when it does not fit this model."""
        path = Path(folder) / "adapters.safetensors"
        try:
            saved = load_file(path)
            own = {name: p for role in ROLES for name, p in self.parameters(role).items()}
            if saved.keys() != own.keys():
                raise KeyError(f"{len(saved.keys() ^ own.keys())} weights have no counterpart")
            with torch.no_grad():
                for name, parameter in own.items():
                    parameter.copy_(saved[name])
        except Exception as error:
            raise ValueError(f"checkpoint {path} cannot be loaded into this model: {error}") from error
        return self


def unwrapped_copy(model):
    """A copy of the causal LM with plain layers where the adapters were."""
    bare = copy.deepcopy(model)
    for name, layer in list(bare.named_modules()):
        if isinstance(layer, LoraLayer):
            parent, _, leaf = name.rpartition(".")
            setattr(bare.get_submodule(parent), leaf, layer.base_layer)
    return bare.requires_grad_(False).eval()
