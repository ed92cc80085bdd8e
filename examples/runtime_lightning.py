"""A small job under Lightning, with dsup_runtime in a callback.

    dsup launch --nproc 2 --checkpoint-dir saved examples/runtime_lightning.py
    torchrun --nproc-per-node 2 examples/runtime_lightning.py
    python examples/runtime_lightning.py

Lightning is told what to resume before ``fit`` makes the process group, so all ranks
take dsup's word for it; under another launcher they begin anew. An epoch that was cut
short gets its rows from the start again, unless its loader has a state.
"""

import os
import signal
from functools import partial

from lightning.pytorch import Callback, Trainer, seed_everything
from sine import read_arguments, small_job
from torch.utils.data import DataLoader
from with_lightning import SmallJob

import dsup_runtime as rt


class Supervised(Callback):
    """Beats, and has all ranks save and stop at the same step; made inside ``run``."""

    def __init__(self, saved: rt.CheckpointDir) -> None:
        self.saved, self.on_sigterm = saved, signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: Trainer, *_: object) -> None:
        """Let SIGTERM ask for an agreed stop, as it did before ``fit``."""
        # Lightning's handler meets the other ranks wherever this one happens to be, and
        # its loop meets them before each batch to hear what should_stop says.
        signal.signal(signal.SIGTERM, self.on_sigterm)
        trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = int  # noqa: SLF001
        if rt.info().resume_from:  # was it whole, and the same for all ranks?
            self.saved.load(lambda _: trainer.global_step)
        print(f"rank {trainer.global_rank} begins at step {trainer.global_step}")

    def on_train_batch_start(self, trainer: Trainer, *_: object) -> None:
        """Be seen."""
        rt.beat(trainer.global_step)
        rt.fault_point("step", trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        """Save if it is time to, and stop if all ranks are to."""
        stop = rt.should_stop(trainer.global_step)
        if stop or self.saved.due(trainer.global_step):
            self.saved.save(trainer.global_step, partial(write, trainer))
        trainer.should_stop = trainer.should_stop or bool(stop)


def write(trainer: Trainer, folder: str) -> None:
    """Write the state of all ranks, as all of them do."""
    trainer.save_checkpoint(f"{folder}/lightning.ckpt", weights_only=False)


def main() -> None:
    """Read the command line, and train."""
    args = read_arguments("A small job under Lightning.")
    rows = DataLoader(small_job()[1], 32, shuffle=True)
    seed_everything(0)
    with rt.run():
        trainer = Trainer(
            devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
            max_epochs=args.epochs,
            callbacks=[
                Supervised(rt.CheckpointDir(args.checkpoints, every=args.every))
            ],
            enable_checkpointing=False,
            enable_progress_bar=False,
            logger=False,
        )
        found = rt.info().resume_from
        trainer.fit(SmallJob(), rows, ckpt_path=found and f"{found}/lightning.ckpt")
        print(f"rank {trainer.global_rank} ends at step {trainer.global_step}")


if __name__ == "__main__":
    main()
