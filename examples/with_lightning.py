"""A small job under Lightning: two layers learn a sine.

Lightning starts ranks only where nobody else has. It knows dsup's by what it knows
torchrun's by (``TorchElasticEnvironment``), so there is nothing to switch off. But
``devices`` must be what was launched, else it raises: this script asks the launcher.

    python examples/with_lightning.py
    torchrun --nproc-per-node 2 examples/with_lightning.py
    dsup launch --nproc 2 examples/with_lightning.py

To go on after a failure where it was, let the script ``--save saved`` and give dsup
``--checkpoint-glob 'saved/*.ckpt' --resume-arg=--resume={path}``.
"""

import argparse
import os

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset


class SmallJob(LightningModule):
    """A model, and how it is to learn."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return what takes the steps."""
        return torch.optim.AdamW(self.parameters(), lr=0.01)

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the loss of one batch."""
        loss = mse_loss(self.model(batch[0]), batch[1])
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def on_fit_start(self) -> None:
        """Say who this is."""
        print(f"rank {self.global_rank} of {self.trainer.world_size}", flush=True)

    def on_train_epoch_end(self) -> None:
        """Say how it goes."""
        loss = self.trainer.callback_metrics["loss"]
        self.print(f"epoch {self.current_epoch + 1}  loss {loss:.6f}", flush=True)


def main() -> None:
    """Read the command line, and train."""
    parser = argparse.ArgumentParser(description="A small job under Lightning.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--save", metavar="DIR", help="save each epoch there")
    parser.add_argument("--resume", metavar="PATH", help="go on from what was saved")
    args = parser.parse_args()
    seed_everything(0)
    x = torch.linspace(-3, 3, 1024).unsqueeze(1)
    saving = ModelCheckpoint(args.save, "{epoch}", save_top_k=-1)
    trainer = Trainer(
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        max_epochs=args.epochs,
        callbacks=[saving] if args.save else [],
        enable_checkpointing=bool(args.save),
        enable_model_summary=False,
        enable_progress_bar=False,
        logger=False,
    )
    rows = DataLoader(TensorDataset(x, x.sin()), 32, shuffle=True)
    trainer.fit(SmallJob(), rows, ckpt_path=args.resume)


if __name__ == "__main__":
    main()
