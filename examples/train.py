"""A small transformer learns to write Python from the standard library's sources.

Plain PyTorch on nccl or gloo. Lines that end in a star know dsup; they do no harm under
another launcher, or without any:

    dsup launch --nproc 2 --checkpoint-dir saved examples/train.py --checkpoints saved
    torchrun --nproc-per-node 2 examples/train.py
    python examples/train.py

Nothing but the checkpoint is carried from step to step: all that is random in a step is
a function of (seed, step, rank). So a run that was killed and resumed ends with the
weights of one that was not, on CPUs bit by bit.
"""

import argparse
import hashlib
import os
import sysconfig
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW, Optimizer

import dsup_runtime as rt  # *
from dsup_runtime.checkpoints import begin, commit, newest_valid, prune  # *

CHARACTERS, CONTEXT, BATCH = 128, 64, 32  # ASCII; characters a row; rows a rank


class Writer(nn.Module):
    """Predicts the next character, at every place of a text."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, width)
        self.places = nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        norm = nn.LayerNorm(width)
        self.blocks = nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)
        self.head = nn.Linear(width, CHARACTERS)

    def forward(self, text: Tensor) -> Tensor:
        """Return a score for each character that may follow each place."""
        place = torch.arange(text.shape[1], device=text.device)
        mask = nn.Transformer.generate_square_subsequent_mask(len(place), text.device)
        x = self.characters(text) + self.places(place)
        scores: Tensor = self.head(self.blocks(x, mask=mask, is_causal=True))
        return scores

    @torch.no_grad()
    def write(self, prompt: str, length: int) -> str:
        """Continue a text."""
        text = torch.tensor([list(prompt.encode())], device=self.head.weight.device)
        for _ in range(length):
            chances = torch.softmax(1.5 * self(text[:, -CONTEXT:])[0, -1], dim=0)
            text = torch.cat([text, torch.multinomial(chances, 1)[None]], dim=1)
        return bytes(text[0].tolist()).decode().expandtabs(4)

    def digest(self) -> str:
        """Return a checksum of all weights."""
        digest = hashlib.sha256()
        for weights in self.state_dict().values():
            digest.update(bytes(weights.cpu().view(torch.uint8).flatten().tolist()))
        return digest.hexdigest()


def read_library() -> Tensor:
    """Return the standard library as one row of characters, tabs for indents."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = b"".join(file.read_bytes() for file in files).replace(b"    ", b"\t")
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).clamp(max=127)


def join_group() -> torch.device:
    """Meet the other ranks; a process without a launcher is rank 0 of 1."""
    me = rt.info()  # *
    on_gpu = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    device = torch.device("cuda", me.local_rank) if on_gpu else torch.device("cpu")
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        "env://" if "MASTER_ADDR" in os.environ else "tcp://127.0.0.1:0",
        timeout=timedelta(seconds=me.comm_timeout_s) if me.comm_timeout_s else None,
        rank=me.rank,
        world_size=me.world_size,
        device_id=device if on_gpu else None,
    )
    return device


def save(root: str, step: int, writer: Writer, optimizer: Optimizer) -> None:
    """Publish a checkpoint: all of it or nothing, whatever happens."""
    state = {"writer": writer.state_dict(), "optimizer": optimizer.state_dict()}
    with rt.phase("checkpoint"):  # *
        folder = begin(root, step, attempt=rt.info().attempt)  # *
        torch.save({"step": step, **state}, f"{folder}/state.pt")
        commit(folder, step)  # *
        prune(root, keep=3)  # *


def load(root: str | None, writer: Writer, optimizer: Optimizer) -> int:
    """Restore the newest checkpoint and return its step, 0 if there is none."""
    path = rt.info().resume_from  # *
    if not path and root and dist.get_rank() == 0:
        newest = newest_valid(root, checksums=True).newest  # *
        path = newest.path if newest else None
    told = [path]
    dist.broadcast_object_list(told)  # ranks that look for themselves may disagree
    if told[0] is None:
        return 0
    state = torch.load(f"{told[0]}/state.pt", map_location="cpu", weights_only=True)
    writer.load_state_dict(state["writer"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def learn(
    model: nn.Module, optimizer: Optimizer, rows: Tensor, fault: object
) -> Tensor:
    """Take one step and return its loss, the mean of all ranks."""
    scores = model(rows[:, :-1])
    loss = cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten())
    if fault == "nan":
        loss = loss * float("nan")
    optimizer.zero_grad()
    loss.backward()
    # Gradients are the mean of all ranks by now: all ranks judge alike and raise.
    if not torch.isfinite(nn.utils.clip_grad_norm_(model.parameters(), 1.0)):
        raise FloatingPointError(f"gradients are not finite (loss here: {loss:.3f})")
    optimizer.step()
    mean = loss.detach() / dist.get_world_size()
    dist.all_reduce(mean)
    return mean


def train(args: argparse.Namespace, device: torch.device) -> Writer:
    """Train from the newest checkpoint to the last step."""
    torch.manual_seed(args.seed)
    writer = Writer(args.width).to(device)
    optimizer = AdamW(writer.parameters(), lr=3e-3)
    first = load(args.checkpoints, writer, optimizer)
    model = DistributedDataParallel(writer)
    # DDP regroups its gradients after the first backward pass, and then sums round
    # differently: with that pass made before the first step, all lives are alike.
    model(torch.zeros(1, CONTEXT, dtype=torch.long, device=device)).sum().backward()
    library, begun_s = read_library(), time.monotonic()
    for step in range(first, args.steps):
        rt.beat(step)  # *
        fault = rt.fault_point("step", step)  # *
        torch.manual_seed((args.seed << 48) + (step << 16) + dist.get_rank())
        starts = torch.randint(len(library) - CONTEXT, (BATCH, 1))
        rows = library[starts + torch.arange(CONTEXT + 1)].to(device, torch.long)
        loss = learn(model, optimizer, rows, fault)
        done = step + 1
        if dist.get_rank() == 0 and (done % 10 == 0 or done in (first + 1, args.steps)):
            seen = (done - first) * BATCH * CONTEXT * dist.get_world_size()
            speed = seen / (time.monotonic() - begun_s)
            print(f"step {done:5}  loss {loss:.3f}  {speed:,.0f} tokens/s", flush=True)
        if dist.get_rank() == 0 and args.checkpoints and done % args.every == 0:
            save(args.checkpoints, done, writer, optimizer)
    return writer


def main() -> None:
    """Read the command line, train, and show what was learnt."""
    parser = argparse.ArgumentParser(description="A small job to try a launcher with.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--checkpoints", metavar="DIR", help="save there, resume there")
    parser.add_argument("--checkpoint-every", type=int, default=50, dest="every")
    parser.add_argument("--fault", metavar="KIND:RANK@STEP", help="break a rank, once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=128, help="a multiple of 4")
    args = parser.parse_args()
    if args.fault:
        os.environ["DSUP_FAULT"] = args.fault  # *
    writer = train(args, join_group())
    # Every rank does this, not only the one that prints: gloo's threads may still hold
    # the last all-reduce when a rank exits right after it, and then they abort it.
    with rt.phase("eval", limit_s=900):  # *
        sample, digest = writer.write("def ", 240), writer.digest()
    if dist.get_rank() == 0:
        print(f"\n{sample}\n\nweights sha256 {digest}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
