"""A small job under the Trainer of Hugging Face transformers: two layers learn a sine.

The Trainer starts nothing. It reads the variables that a launcher sets, torchrun's or
dsup's, and is one process without them; on a node with many GPUs that one then drives
them all by the slow ``DataParallel``, so give dsup ``--nproc gpu`` there.

    python examples/with_transformers.py
    torchrun --nproc-per-node 2 examples/with_transformers.py
    dsup launch --nproc 2 examples/with_transformers.py

To go on after a failure where it was, let the script ``--save saved`` and give dsup
``--checkpoint-glob 'saved/checkpoint-*' --resume-arg=--resume={path}``.
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from transformers import Trainer, TrainingArguments


class SmallJob(nn.Module):
    """A model as the Trainer wants it: it computes its loss itself."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Guess, and say how wrong that is."""
        guess = self.model(x)
        return {"loss": mse_loss(guess, labels), "logits": guess}


def main() -> None:
    """Read the command line, and train."""
    parser = argparse.ArgumentParser(description="A small job under the Trainer.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--save", metavar="DIR", help="save each epoch there")
    parser.add_argument("--resume", metavar="PATH", help="go on from what was saved")
    args = parser.parse_args()

    how = TrainingArguments(
        output_dir=args.save,
        use_cpu=not torch.cuda.is_available(),
        num_train_epochs=args.epochs,
        per_device_train_batch_size=32,
        learning_rate=0.01,
        logging_strategy="epoch",
        save_strategy="epoch" if args.save else "no",
        ddp_find_unused_parameters=False,
        report_to="none",
        disable_tqdm=True,
    )
    print(f"rank {how.process_index} of {how.world_size}", flush=True)
    xs = torch.linspace(-3, 3, 1024).unsqueeze(1)
    rows = [{"x": x, "labels": x.sin()} for x in xs]
    # Given the class and not an instance, the Trainer seeds before it makes the model.
    trainer = Trainer(args=how, model_init=SmallJob, train_dataset=rows)
    trainer.train(resume_from_checkpoint=args.resume)
    accelerator = trainer.accelerator
    # Where a model under DDP outlives its group, gloo's threads may hang the rank.
    del trainer
    accelerator.free_memory()
    accelerator.end_training()


if __name__ == "__main__":
    main()
