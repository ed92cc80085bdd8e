"""What examples/runtime_*.py share: a command line, and a sine to learn."""

import argparse

import torch
from torch import nn
from torch.utils.data import TensorDataset


def read_arguments(description: str) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--checkpoints", metavar="DIR", default="saved")
    parser.add_argument("--checkpoint-every", type=int, default=50, dest="every")
    return parser.parse_args()


def small_job() -> tuple[nn.Module, TensorDataset]:
    """Return a model, and what it is to learn."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    x = torch.linspace(-3, 3, 1024).unsqueeze(1)
    return model, TensorDataset(x, x.sin())
