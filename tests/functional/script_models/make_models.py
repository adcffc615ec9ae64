#!/usr/bin/env python3
"""Writes the TorchScript files that script_module_test.cc loads, beside this script.

NAME.pt is an exported module, in double; NAME_expected.pt a module whose buffers are inputs, targets, outputs, losses
and, with dots written as "__", the gradient of every parameter for each sample, as torch.func computes them. Run it
with the torch of the release that Graft supports: python3 tests/functional/script_models/make_models.py
"""

import pathlib
import zipfile

import torch
from torch import nn
from torch.nn import functional as F

FOLDER = pathlib.Path(__file__).resolve().parent


class Cnn(nn.Module):
    """Convolutions (one with a functional's default stride), batch norm in eval mode, group norm, linear."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.kernel = nn.Parameter(0.3 * torch.randn(4, 4, 3, 3))
        self.shift = nn.Parameter(0.3 * torch.randn(4))
        self.layers = nn.ModuleList([nn.GroupNorm(2, 4), nn.Sequential(nn.Flatten(), nn.Linear(64, 3))])

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        x = F.conv2d(x, self.kernel, self.shift)
        for layer in self.layers:
            x = layer(x)
        return x


class Tied(nn.Module):
    """A parameter under two names, a sub-module under two names, and attributes that are not registered."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.again = self.first
        self.weight = nn.Parameter(torch.randn(3))
        self.same = self.weight
        self.register_parameter("absent", None)
        self.constant = torch.ones(3)
        self.list = [torch.ones(3)]

    def forward(self, x):
        return self.again(self.first(x) * self.weight) + self.same + self.constant + self.list[0]


class Several(nn.Module):
    """Returns several tensors, and has an argument with a default."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x, scale: float = 2.0):
        return self.fc(x), x * scale


@torch.jit.interface
class Activation(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pass


class Tanh(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)


class ByInterface(nn.Module):
    activation: Activation

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.activation = Tanh()

    def forward(self, x):
        return self.activation(self.fc(x))


class Forking(nn.Module):
    """Runs a part on another thread."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        future = torch.jit.fork(self.fc, x)
        return torch.jit.wait(future) * self.fc(x).sigmoid()


def randomize_statistics(module):
    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(0, 0.3)
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)


def save(name, script_module):
    """Writes a file without the places of this script's lines on the machine that ran it."""
    path = FOLDER / f"{name}.pt"
    script_module.save(path)
    with zipfile.ZipFile(path) as archive:
        entries = [(info, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for info, content in entries:
            if not info.filename.endswith(".debug_pkl"):
                archive.writestr(info.filename, content, info.compress_type)


def save_expected(name, module, loss, inputs, targets):
    """Writes what the forward of each sample and torch.func's per-sample gradients are."""
    params = {key: value.detach() for key, value in module.named_parameters()}
    buffers = dict(module.named_buffers())

    def sample_loss(values, x, y):
        return loss(torch.func.functional_call(module, (values, buffers), (x.unsqueeze(0),)), y.unsqueeze(0))

    per_sample = torch.func.vmap(torch.func.grad_and_value(sample_loss), in_dims=(None, 0, 0))
    gradients, losses = per_sample(params, inputs, targets)
    expected = nn.Module()
    expected.register_buffer("inputs", inputs)
    expected.register_buffer("targets", targets)
    expected.register_buffer("outputs", module(inputs).detach())
    expected.register_buffer("losses", losses)
    for key, gradient in gradients.items():
        expected.register_buffer("gradients__" + key.replace(".", "__"), gradient)
    save(f"{name}_expected", torch.jit.script(expected))


def save_script(name, module):
    save(name, torch.jit.script(module))


def main():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.double)

    cnn = Cnn().eval()
    randomize_statistics(cnn)
    save_script("cnn", cnn)
    inputs, labels = torch.randn(5, 1, 8, 8), torch.randint(3, (5,))
    save_expected("cnn", cnn, F.cross_entropy, inputs, labels)
    save("cnn_traced", torch.jit.trace(cnn, torch.randn(1, 1, 8, 8)))

    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    for parameter in encoder.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))  # the layers were copies
    save_script("encoder", encoder)
    inputs, targets = torch.randn(4, 5, 8), torch.randn(4, 5, 8)
    save_expected("encoder", encoder, lambda y, target: (y - target).square().mean(), inputs, targets)

    save_script("mlp", nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Sigmoid(), nn.Linear(5, 2)))
    save_script("tied", Tied())
    save_script("several", Several())
    save_script("by_interface", ByInterface())
    save_script("forking", Forking())
    save("frozen", torch.jit.freeze(torch.jit.script(nn.Sequential(nn.Linear(3, 2), nn.Tanh()).eval())))


if __name__ == "__main__":
    main()
