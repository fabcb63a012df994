"""A dict argument is guarded by its keys."""

import torch


def program(batch):
    return batch["x"] @ batch["w"] + batch.get("bias", 1)


CALLS = [({"x": torch.ones(2, 3), "w": torch.ones(3, 4)},)]
