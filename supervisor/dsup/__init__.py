"""dsup supervises distributed PyTorch training and names the rank that failed."""

__version__ = "0.1.0"
