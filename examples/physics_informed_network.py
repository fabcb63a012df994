"""A network that solves Burgers' equation: its loss is how far its derivatives are from u_t + u u_x = nu u_xx."""

import torch

import gallery
import numpy as np
import tatara

NU = 0.01 / np.pi


def network(width):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(2, width), torch.nn.Tanh()]
    for _ in range(3):
        layers += [torch.nn.Linear(width, width), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 1))


def residual(model, t, x):
    t, x = t.requires_grad_(), x.requires_grad_()
    u = model(torch.cat([t, x], dim=1))
    ones = torch.ones_like(u)
    u_t, u_x = torch.autograd.grad(u, (t, x), ones, create_graph=True)
    (u_xx,) = torch.autograd.grad(u_x, x, ones, create_graph=True)
    return u_t + u * u_x - NU * u_xx


def training_step(model, optimizer, t, x, start, start_value, sides):
    optimizer.zero_grad()
    loss = (
        residual(model, t, x).square().mean()
        + (model(start) - start_value).square().mean()
        + model(sides).square().mean()
    )
    loss.backward()
    optimizer.step()
    return loss.detach()


def train(model, points, steps, step=training_step):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    return model, torch.stack([step(model, optimizer, *points) for _ in range(steps)])


compiled_step = tatara.compile(training_step)


def plain(*arguments):
    model, losses = train(*arguments)
    return losses, [parameter.detach() for parameter in model.parameters()]


def compiled(*arguments):
    model, losses = train(*arguments, step=compiled_step)
    return losses, [parameter.detach() for parameter in model.parameters()]


def data(small):
    width, count, steps = (8, 32, 3) if small else (32, 1000, 30)
    generator = torch.Generator().manual_seed(1)
    t, x = torch.rand(count, 1, generator=generator), 2 * torch.rand(count, 1, generator=generator) - 1
    at = torch.linspace(-1, 1, 100)[:, None]
    start = torch.cat([torch.zeros_like(at), at], dim=1)
    sides = torch.cat([torch.rand(100, 1, generator=generator), torch.tensor([-1.0, 1.0]).repeat(50)[:, None]], dim=1)
    return network(width), (t, x, start, -torch.sin(torch.pi * at), sides), steps


def draw(pyplot, _result):
    model, points, _ = data(False)
    train(model, points, 1500, step=compiled_step)
    t, x = torch.meshgrid(torch.linspace(0, 1, 100), torch.linspace(-1, 1, 100), indexing="ij")
    with torch.no_grad():
        u = model(torch.stack([t.ravel(), x.ravel()], dim=1)).reshape(t.shape)
    pyplot.figure(figsize=(5, 3))
    pyplot.imshow(u.T.numpy(), origin="lower", extent=(0, 1, -1, 1), aspect="auto", cmap="RdBu")
    pyplot.colorbar()
    pyplot.xlabel("t")
    pyplot.ylabel("x")


if __name__ == "__main__":
    gallery.show(compiled, plain, data, draw, tolerance=2e-3)
