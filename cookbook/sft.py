"""SFT: demonstrations -> the policy adapter, by TRL's SFTTrainer; then reference and critic start from it.

In:  Policy, demonstrations as Episodes, so that there is no second renderer.     Out: the loss at each step.
Taught in: notebooks/40_recipe.ipynb
"""

from pathlib import Path

from cookbook.episode import TOLD, Episode
from cookbook.policy import Policy


def warm_start(
    policy: Policy, demos: list[Episode], epochs: int = 4, learning_rate: float = 1e-3, batch: int = 8, seed: int = 0
) -> list[float]:
    """SFT on demonstrations, on the policy's own tokens only; then the reference is frozen as a copy.

    Returns the loss (nats a token) at each step. Raises ValueError when a demo trains no token, or every token.
    """
    from datasets import Dataset, disable_progress_bars
    from transformers.trainer_callback import PrinterCallback
    from transformers.utils import logging as hf_logging
    from trl import SFTConfig, SFTTrainer

    masks = [[int(turn != TOLD) for turn in demo.turn_ids] for demo in demos]
    for demo, mask in zip(demos, masks, strict=True):
        if not 0 < sum(mask) < len(mask):
            raise ValueError(f"demonstration {demo.task.id} would train {sum(mask)} of {len(mask)} tokens")
    rows = Dataset.from_dict({"input_ids": [demo.token_ids for demo in demos], "assistant_masks": masks})
    on_cpu = policy.device.type == "cpu"
    runs = Path("runs") / "sft"
    arguments = SFTConfig(
        output_dir=str(runs), max_length=None, packing=False, bf16=not on_cpu, use_cpu=on_cpu,
        gradient_checkpointing=False, num_train_epochs=epochs, per_device_train_batch_size=batch,
        learning_rate=learning_rate, lr_scheduler_type="cosine", warmup_steps=0.1, weight_decay=0.0,
        logging_steps=1, save_strategy="no", report_to="none", seed=seed, data_seed=seed, disable_tqdm=True,
        dataloader_pin_memory=not on_cpu,
    )  # fmt: skip
    policy.use("policy")
    quiet = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    disable_progress_bars()
    try:
        trainer = SFTTrainer(model=policy.peft, args=arguments, train_dataset=rows, processing_class=policy.tokenizer)
        trainer.pop_callback(PrinterCallback)
        trainer.train()
    finally:
        hf_logging.set_verbosity(quiet)
        vars(policy.model).pop("forward", None)  # the trainer leaves a wrapper of its own on the model
    policy.use("policy")
    for role in ("reference", "critic"):
        policy.copy_adapter("policy", role)
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]
