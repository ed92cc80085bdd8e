"""A small job under the Trainer of transformers, with dsup_runtime in a callback.

    dsup launch --nproc 2 --checkpoint-dir saved examples/runtime_transformers.py
    torchrun --nproc-per-node 2 examples/runtime_transformers.py
    python examples/runtime_transformers.py

The Trainer's flags are each rank's own: one that a rank sets for itself, for its own
SIGTERM say, leaves the others behind. So only the agreed stop sets them here. The
Trainer writes its checkpoints as ever; what is resumed is what all ranks published.
"""

import os
from contextlib import ExitStack

import torch
from sine import read_arguments, small_job
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers import TrainerControl as Flags
from transformers import TrainerState as State
from with_transformers import SmallJob

import dsup_runtime as rt


class Supervised(TrainerCallback):
    """Beats, and has all ranks publish what they saved and stop at the same step."""

    def __init__(self, saved: rt.CheckpointDir, theirs: str) -> None:
        self.saved, self.theirs, self.between = saved, theirs, ExitStack()

    def on_step_begin(
        self, _: object, state: State, *__: object, **___: object
    ) -> None:
        """Be seen."""
        self.between.close()
        rt.beat(state.global_step)
        rt.fault_point("step", state.global_step)

    def on_step_end(self, _: object, state: State, flags: Flags, **__: object) -> None:
        """Save and stop if all ranks are to."""
        if rt.should_stop(state.global_step):
            flags.should_save = flags.should_training_stop = True
        self.on_epoch_end(_, state, flags)

    def on_epoch_end(self, _: object, __: State, flags: Flags, **___: object) -> None:
        """Say why the next step will be late."""
        phases = {"checkpoint": flags.should_save, "eval": flags.should_evaluate}
        for name in filter(phases.get, phases):
            self.between.enter_context(rt.phase(name, limit_s=900))

    def on_save(self, _: object, state: State, *__: object, **___: object) -> None:
        """Publish what all ranks have written, and leave nothing behind."""

        def write(folder: str) -> None:
            if rt.info().is_main:
                os.rename(f"{self.theirs}-{state.global_step}", f"{folder}/trainer")

        self.saved.save(state.global_step, write)


def main() -> None:
    """Read the command line, and train."""
    args = read_arguments("A small job under the Trainer.")
    theirs, cpu = f"{args.checkpoints}/trainer", not torch.cuda.is_available()
    with rt.run():
        size = {"num_train_epochs": args.epochs, "per_device_train_batch_size": 32}
        rest = {"save_steps": args.every, "use_cpu": cpu, "disable_tqdm": True}
        how = TrainingArguments(theirs, **size, **rest)
        saved = rt.CheckpointDir(args.checkpoints)
        rows = [{"x": x, "labels": y} for x, y in small_job()[1]]
        ours = [Supervised(saved, f"{theirs}/checkpoint")]
        trainer = Trainer(SmallJob(), how, train_dataset=rows, callbacks=ours)
        found = saved.load(lambda _: None)
        print(f"rank {how.process_index} begins at step {found.step if found else 0}")
        trainer.train(resume_from_checkpoint=found and f"{found.path}/trainer")
        print(f"rank {how.process_index} ends at step {trainer.state.global_step}")


if __name__ == "__main__":
    main()
