"""What examples/train.py trains: a small transformer that learns to write Python."""

import hashlib
import os
import sysconfig
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import dsup_runtime as rt

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


class Library:
    """The standard library's sources as one row of characters, tabs for indents."""

    def __init__(self, seed: int, device: torch.device) -> None:
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        text = b"".join(file.read_bytes() for file in files).replace(b"    ", b"\t")
        self._text = torch.frombuffer(bytearray(text), dtype=torch.uint8).clamp(max=127)
        self._seed, self._device = seed, device

    def rows(self, batch: int) -> Tensor:
        """Return this rank's rows, a function of (seed, batch, rank) and of no more."""
        torch.manual_seed((self._seed << 48) + (batch << 16) + dist.get_rank())
        starts = torch.randint(len(self._text) - CONTEXT, (BATCH, 1))
        rows = self._text[starts + torch.arange(CONTEXT + 1)]
        return rows.to(self._device, torch.long)


def loss_of(model: nn.Module, rows: Tensor) -> Tensor:
    """Return how badly a model continues the rows."""
    return cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def save(state: Mapping[str, Any], folder: str) -> None:
    """Write what rank 0 holds, as all ranks do."""
    if dist.get_rank() == 0:
        held = {name: part.state_dict() for name, part in state.items()}
        torch.save(held, f"{folder}/state.pt")


def load(state: Mapping[str, Any], folder: str) -> int:
    """Restore what was saved, and return its step."""
    held = torch.load(f"{folder}/state.pt", map_location="cpu", weights_only=True)
    for name, part in state.items():
        part.load_state_dict(held[name])
    return int(held["progress"]["step"])


def join_group() -> torch.device:
    """Meet the other ranks; a process without a launcher is rank 0 of 1."""
    me = rt.info()
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
