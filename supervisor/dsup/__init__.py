"""dsup supervises distributed PyTorch training and names the rank that failed."""
