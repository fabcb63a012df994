"""Programs that mix torch and NumPy in one function, as their authors write them: (name, program, how to make its arguments)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import numpy as np

PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {}


def case(make: Callable[[], tuple[Any, ...]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(program: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[program.__name__] = (program, make)
        return program

    return add


class Net(torch.nn.Module):
    def __init__(self, n: int = 8, out: int = 5) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(3)
        self.first = torch.nn.Linear(n, 16)
        self.last = torch.nn.Linear(16, out)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=g) * 0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(F.relu(self.first(x)))


NET = Net()


def tensors(*shapes: tuple[int, ...]) -> Callable[[], tuple[Any, ...]]:
    return lambda: tuple(
        torch.rand(shape, generator=torch.Generator().manual_seed(7 + i)) for i, shape in enumerate(shapes)
    )


def arrays(*shapes: tuple[int, ...], dtype: Any = np.float64) -> Callable[[], tuple[Any, ...]]:
    return lambda: tuple(np.random.RandomState(5 + i).rand(*shape).astype(dtype) for i, shape in enumerate(shapes))


# ---- Around a model


@case(arrays((6, 8)))
def predict(batch: Any) -> Any:
    with torch.no_grad():
        x = torch.from_numpy(batch).float()
        return NET(x).numpy()


@case(arrays((6, 8)))
def normalise_and_predict(batch: Any) -> Any:
    batch = (batch - batch.mean(axis=0)) / (batch.std(axis=0) + 1e-7)
    with torch.no_grad():
        logits = NET(torch.tensor(batch, dtype=torch.float32))
        return torch.softmax(logits, dim=1).cpu().numpy()


@case(tensors((6, 8)))
def softmax_in_numpy(x: Any) -> Any:
    logits = NET(x).detach().cpu().numpy()
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@case(arrays((4, 6, 3), dtype=np.float32))
def image_to_tensor(img: Any) -> Any:
    img = img.transpose(2, 0, 1)[None]
    t = torch.from_numpy(np.ascontiguousarray(img))
    return F.avg_pool2d(t, 2)


@case(lambda: (np.random.RandomState(0).randint(0, 255, (8, 8, 3)).astype(np.uint8),))
def uint8_image(img: Any) -> Any:
    mean = np.array([0.485, 0.456, 0.406])
    std = np.array([0.229, 0.224, 0.225])
    x = (img / 255.0 - mean) / std
    x = torch.from_numpy(x).permute(2, 0, 1).float().unsqueeze(0)
    return F.interpolate(x, scale_factor=2)


@case(tensors((3, 4, 4)))
def tensor_to_image(x: Any) -> Any:
    arr = x.mul(255).clamp(0, 255).byte().permute(1, 2, 0).cpu().numpy()
    return arr[::-1]


@case(tensors((2, 5, 6)))
def roundtrip(x: Any) -> Any:
    y = torch.from_numpy(np.flip(x.numpy(), 1).copy())
    return y * 2 + x


# ---- Metrics


@case(lambda: (torch.rand(20, 5, generator=torch.Generator().manual_seed(1)), torch.arange(20) % 5))
def accuracy(logits: Any, labels: Any) -> Any:
    pred = logits.argmax(1).numpy()
    return (pred == labels.numpy()).mean()


@case(lambda: (torch.rand(20, generator=torch.Generator().manual_seed(1)), (torch.arange(20) % 2).float()))
def f1(scores: Any, labels: Any) -> Any:
    p = (scores.detach().numpy() > 0.5).astype(np.int64)
    y = labels.numpy().astype(np.int64)
    tp = np.sum(p * y)
    fp = np.sum(p * (1 - y))
    fn = np.sum((1 - p) * y)
    return 2 * tp / (2 * tp + fp + fn)


@case(tensors((50,), (50,)))
def rmse_and_r2(pred: Any, target: Any) -> Any:
    p, t = pred.numpy(), target.numpy()
    rmse = np.sqrt(np.mean((p - t) ** 2))
    r2 = 1 - np.sum((t - p) ** 2) / np.sum((t - np.mean(t)) ** 2)
    return rmse, r2


@case(tensors((50,), (50,)))
def metrics_as_floats(pred: Any, target: Any) -> Any:
    err = (pred - target).abs().cpu().numpy()
    return {"mae": float(err.mean()), "max": float(np.max(err)), "mse": (err**2).mean().item()}


@case(lambda: (torch.rand(30, 4, generator=torch.Generator().manual_seed(2)), torch.arange(30) % 4))
def confusion(logits: Any, labels: Any) -> Any:
    pred = torch.argmax(logits, dim=-1).cpu().numpy()
    cm = np.zeros((4, 4), dtype=np.int64)
    np.add.at(cm, (labels.cpu().numpy(), pred), 1)
    return cm


@case(tensors((3, 16, 16), (3, 16, 16)))
def psnr(a: Any, b: Any) -> Any:
    mse = np.mean((a.numpy().astype(np.float64) - b.numpy().astype(np.float64)) ** 2)
    return 10 * np.log10(1.0 / mse)


# ---- Boxes


@case(tensors((6, 4)))
def iou_matrix(boxes: Any) -> Any:
    b = boxes.numpy().copy()
    b[:, 2:] += b[:, :2]
    area = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    lt = np.maximum(b[:, None, :2], b[None, :, :2])
    rb = np.minimum(b[:, None, 2:], b[None, :, 2:])
    wh = np.clip(rb - lt, 0, None)
    inter = wh[..., 0] * wh[..., 1]
    return torch.from_numpy(inter / (area[:, None] + area[None] - inter))


@case(tensors((6, 4), (6,)))
def sort_boxes(boxes: Any, scores: Any) -> Any:
    order = scores.numpy().argsort()[::-1].copy()
    return boxes[order], scores[torch.from_numpy(order)]


@case(arrays((5, 4), dtype=np.float32))
def xyxy_to_cxcywh(b: Any) -> Any:
    out = np.empty_like(b)
    out[:, :2] = (b[:, :2] + b[:, 2:]) / 2
    out[:, 2:] = b[:, 2:] - b[:, :2]
    return torch.as_tensor(out) * torch.tensor([640.0, 480.0, 640.0, 480.0])


# ---- Positions and schedules


@case(tensors((2, 10, 16)))
def positional_encoding(x: Any) -> Any:
    n, d = 10, 16
    position = np.arange(n)[:, np.newaxis]
    div_term = np.exp(np.arange(0, d, 2) * -(math.log(10000.0) / d))
    pe = np.zeros((n, d))
    pe[:, 0::2] = np.sin(position * div_term)
    pe[:, 1::2] = np.cos(position * div_term)
    return x + torch.from_numpy(pe).float()


@case(tensors((2, 8)))
def diffusion_step(x: Any) -> Any:
    betas = np.linspace(1e-4, 0.02, 100, dtype=np.float64)
    alphas = np.cumprod(1.0 - betas, axis=0)
    a = torch.from_numpy(alphas).to(dtype=torch.float32)
    t = torch.tensor([3, 50])
    return a[t].sqrt()[:, None] * x + (1 - a[t]).sqrt()[:, None]


@case(tensors((4, 4)))
def cosine_schedule(x: Any) -> Any:
    lr = 0.5 * (1 + np.cos(np.pi * np.arange(10) / 10))
    return x * lr[3], x * torch.tensor(lr[:4])


@case(tensors((2, 8)))
def sigma_from_data(x: Any) -> Any:
    s = np.std(x.numpy())
    return x / s, x * s + 1


@case(tensors((6, 6)))
def causal_mask(scores: Any) -> Any:
    mask = np.triu(np.ones((6, 6)), k=1).astype("uint8")
    m = torch.from_numpy(mask) == 0
    return scores.masked_fill(~m, float("-inf")).softmax(-1)


# ---- Masks and indices


@case(tensors((10, 3)))
def numpy_index(x: Any) -> Any:
    idx = np.argsort(x[:, 0].numpy())
    return x[idx] * 2


@case(tensors((10,)))
def numpy_mask(x: Any) -> Any:
    keep = x.numpy() > 0.5
    return torch.where(torch.from_numpy(keep), x, torch.zeros(()))


@case(tensors((10, 3)))
def assign_by_index(x: Any) -> Any:
    y = x.clone()
    y[np.array([1, 3, 5])] = 0.0
    return y.sum(0)


@case(lambda: (torch.arange(12.0).reshape(3, 4), np.array([2, 0, 1])))
def gather_rows(x: Any, order: Any) -> Any:
    return x[order][:, :3] + x[:, order]


# ---- Reinforcement learning


@case(tensors((12,)))
def discounted_returns(rewards: Any) -> Any:
    r = rewards.numpy()
    out = np.zeros_like(r)
    running = np.float32(0.0)
    for i in range(len(r) - 1, -1, -1):
        running = r[i] + np.float32(0.9) * running
        out[i] = running
    t = torch.from_numpy(out)
    return (t - t.mean()) / (t.std() + 1e-8)


@case(tensors((8,), (9,)))
def gae(rewards: Any, values: Any) -> Any:
    r, v = rewards.numpy(), values.detach().numpy()
    deltas = r + 0.99 * v[1:] - v[:-1]
    adv = np.zeros_like(deltas)
    last = 0.0
    for t in reversed(range(8)):
        last = deltas[t] + 0.99 * 0.95 * last
        adv[t] = last
    return torch.as_tensor(adv), torch.as_tensor(adv + v[:-1])


@case(tensors((4, 8)))
def policy_entropy(obs: Any) -> Any:
    with torch.no_grad():
        probs = NET(obs).softmax(-1).numpy()
    return -(probs * np.log(probs + 1e-12)).sum(-1).mean()


@case(
    lambda: (
        torch.nn.Parameter(torch.ones(8, 2)),
        np.random.RandomState(1).rand(5, 8),
        np.random.RandomState(2).rand(5),
    )
)
def policy_loss(w: Any, obs: Any, adv: Any) -> Any:
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    logp = F.log_softmax(torch.as_tensor(obs, dtype=torch.float32) @ w, -1)[:, 0]
    return -(logp * torch.as_tensor(adv, dtype=torch.float32)).mean()


# ---- Audio and signals


@case(arrays((256,), dtype=np.float32))
def spectrogram(wave: Any) -> Any:
    frames = np.stack([wave[i : i + 64] for i in range(0, 193, 32)])
    spec = np.abs(np.fft.rfft(frames * np.hanning(64), axis=1)) ** 2
    return torch.log(torch.from_numpy(spec).float() + 1e-6)


@case(tensors((128,)))
def fft_roundtrip(x: Any) -> Any:
    f = np.fft.rfft(x.numpy())
    f[20:] = 0
    return torch.from_numpy(np.fft.irfft(f, n=128)).to(x.dtype) + x


@case(tensors((4, 32)))
def moving_average(x: Any) -> Any:
    c = np.cumsum(np.pad(x.numpy(), ((0, 0), (4, 0))), axis=1)
    return torch.tensor((c[:, 4:] - c[:, :-4]) / 4)


# ---- Functions of NumPy that are given tensors


@case(tensors((5,), (5,)))
def numpy_functions_of_tensors(x: Any, y: Any) -> Any:
    a = np.sqrt(x)
    b = np.maximum(x, y)
    c = np.concatenate([x, y])
    return a, b, c


@case(tensors((5, 3)))
def asarray_of_tensor(x: Any) -> Any:
    a = np.asarray(x)
    return np.dot(a.T, a)


@case(tensors((5,)))
def tensor_and_array(x: Any) -> Any:
    w = np.linspace(0, 1, 5, dtype=np.float32)
    return torch.from_numpy(w) * x, x.numpy() + w


# ---- Aliasing


@case(tensors((5,)))
def write_through_numpy(x: Any) -> Any:
    y = x * 2
    a = y.numpy()
    a[1] = 100.0
    z = y + 1
    y.mul_(3)
    return y, a, z, a.sum()


@case(arrays((5,)))
def write_through_from_numpy(a: Any) -> Any:
    t = torch.from_numpy(a)
    t.add_(1)
    a *= 2
    t[0] = -1
    return t, a, a.sum(), t.sum()


@case(tensors((4, 3)))
def views_share(x: Any) -> Any:
    a = x.t().numpy()
    return a, a[0], torch.from_numpy(a)


# ---- Training


@case(
    lambda: (torch.nn.Parameter(torch.linspace(-1, 1, 8)), torch.rand(6, 8, generator=torch.Generator().manual_seed(1)))
)
def weighted_loss(w: Any, x: Any) -> Any:
    out = (x * w).sum(1)
    weight = 1.0 / (1.0 + np.abs(out.detach().numpy()))
    return (out**2 * torch.from_numpy(weight)).mean()


@case(
    lambda: (torch.nn.Parameter(torch.linspace(-1, 1, 8)), torch.rand(6, 8, generator=torch.Generator().manual_seed(1)))
)
def loss_and_log(w: Any, x: Any) -> Any:
    loss = F.mse_loss(x @ w, x.sum(1))
    return loss, loss.detach().cpu().numpy()


@case(lambda: (torch.nn.Parameter(torch.linspace(-1, 1, 8)), np.random.RandomState(0).rand(6, 8).astype(np.float32)))
def mixup(w: Any, batch: Any) -> Any:
    lam = 0.3
    mixed = lam * batch + (1 - lam) * batch[::-1]
    x = torch.from_numpy(mixed)
    return torch.sigmoid(x @ w).sum()
