#!/usr/bin/env python3
"""What transforms cost here and in Python, measured in one run.

    ./bazelw build //benchmarks:transforms_benchmark
    ~/.cache/graft/venv/bin/python benchmarks/compare_transforms_with_python.py bazel-bin/benchmarks/transforms_benchmark

Python's forms are eager: torch.func's transforms, tensordict's to_module and EnsembleModule under vmap, a loop over the
networks, and the same by hand.
"""

import side_by_side
import torch
from tensordict import TensorDict
from tensordict.nn import EnsembleModule, TensorDictModule
from torch import nn
from torch.func import functional_call, grad, hessian, stack_module_state, vmap
from torch.nn import functional as F


def mlp(activation=nn.ReLU):
    return nn.Sequential(nn.Linear(32, 64), activation(), nn.Linear(64, 64), activation(), nn.Linear(64, 10))


def small_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 8 * 8, 10),
    )


def large_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def per_sample_grad(net, x):
    params = {name: p.detach() for name, p in net.named_parameters()}
    y = torch.randint(10, (len(x),))

    def loss(p, sample, label):
        return F.cross_entropy(functional_call(net, p, (sample.unsqueeze(0),)), label.unsqueeze(0))

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))
    return lambda: gradients(params, x, y)


def hessian_of(net):
    net.requires_grad_(False)
    second = hessian(lambda x: net(x).square().sum())
    x = torch.randn(32)
    return lambda: second(x)


def nested_vmap():
    nets = [mlp() for _ in range(8)]
    params, _ = stack_module_state(nets)
    x = torch.randn(64, 32)
    forward = vmap(lambda p, sample: functional_call(nets[0], p, (sample,)), in_dims=(None, 0))
    return without_grad(lambda: vmap(forward, in_dims=(0, None))(params, x))


def without_grad(run):
    def call():
        with torch.no_grad():
            return run()

    return call


def ensemble_forms(size):
    """Forms by benchmark and name."""
    def make():
        return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))

    nets = [make() for _ in range(size)]
    swapped = make()  # a mapped to_module leaves a module without requires_grad
    x, y = torch.randn(32, 32), torch.randn(32, 10)
    params, _ = stack_module_state(nets)
    leaves = list(params.values())
    detached = {name: p.detach() for name, p in params.items()}
    tree = TensorDict.from_modules(*nets, as_module=True)
    tree_leaves = [tree.get(tuple(name.split("."))) for name in params]
    copies = EnsembleModule(TensorDictModule(make(), in_keys=["x"], out_keys=["y"]), num_copies=size)
    copies_leaves = [copies.params_td.get(("module", *name.split("."))) for name in params]
    inputs = TensorDict({"x": x}, batch_size=[32])

    def by_func():
        return vmap(lambda p, x: functional_call(nets[0], p, (x,)), in_dims=(0, None))(params, x)

    def call_with(p, x, **options):
        with p.to_module(swapped, **options):
            return swapped(x)

    def by_tensordict(**options):
        return vmap(lambda p, x: call_with(p, x, **options), (0, None))(tree, x)

    def by_hand():
        w1, b1, w2, b2 = leaves
        hidden = torch.baddbmm(b1.unsqueeze(1), x.expand(size, 32, 32), w1.transpose(1, 2)).relu_()
        return torch.baddbmm(b2.unsqueeze(1), hidden, w2.transpose(1, 2))

    def by_hand_shared():
        w1, b1, w2, b2 = leaves
        hidden = torch.addmm(b1.reshape(-1), x, w1.reshape(size * 64, 32).t()).relu_()
        return torch.baddbmm(b2.unsqueeze(1), hidden.view(32, size, 64).transpose(0, 1), w2.transpose(1, 2))

    def backward_by_hand():
        w1, b1, w2, b2 = leaves
        shared = x.expand(size, 32, 32)
        hidden = torch.baddbmm(b1.unsqueeze(1), shared, w1.transpose(1, 2)).relu_()
        outputs = torch.baddbmm(b2.unsqueeze(1), hidden, w2.transpose(1, 2))
        of_outputs = (outputs - y).mul_(2.0 / y.numel())
        of_hidden = torch.bmm(of_outputs, w2).mul_(hidden > 0)
        return [
            torch.bmm(of_hidden.transpose(1, 2), shared),
            of_hidden.sum(1),
            torch.bmm(of_outputs.transpose(1, 2), hidden),
            of_outputs.sum(1),
        ]

    def loss_of(outputs):
        return (outputs - y).square().mean((-2, -1)).sum()

    def backward(outputs, parameters):
        return torch.autograd.grad(loss_of(outputs), parameters)

    def by_grad():
        return vmap(grad(lambda p, x: loss_of(functional_call(nets[0], p, (x,)))), in_dims=(0, None))(detached, x)

    forward = {
        "torch.func vmap(functional_call)": by_func,
        "tensordict vmap(to_module)": by_tensordict,
        "tensordict vmap(to_module), not preserving": lambda: by_tensordict(preserve_module_state=False),
        "tensordict EnsembleModule": lambda: copies(inputs)["y"],
        "loop": lambda: [net(x) for net in nets],
        "by hand, baddbmm": by_hand,
        "by hand, first layer by one product": by_hand_shared,
    }
    with_gradients = {
        "torch.func vmap(functional_call), backward": lambda: backward(by_func(), leaves),
        "torch.func vmap(grad)": by_grad,
        "tensordict vmap(to_module), backward": lambda: backward(by_tensordict(), tree_leaves),
        "tensordict EnsembleModule, backward": lambda: backward(copies(inputs)["y"], copies_leaves),
        "loop": lambda: [backward(net(x), list(net.parameters())) for net in nets],
        "by hand, baddbmm and autograd": lambda: backward(by_hand(), leaves),
        "by hand, without autograd": without_grad(backward_by_hand),
    }
    forms = {("Forward", name): without_grad(run) for name, run in forward.items()}
    for name, run in with_gradients.items():
        forms["Backward", name] = run
        forms["Grad", name] = run
    return forms


def main():
    parser = side_by_side.parser(__doc__, "//benchmarks:transforms_benchmark")
    parser.add_argument("--members", nargs="*", type=int, default=[8, 64, 256], help="sizes of ensembles")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    forms = {
        ("gradients, MLP", "vmap(grad)"): (per_sample_grad(mlp(), torch.randn(64, 32)), "BM_PerSampleGradMlp"),
        ("gradients, small CNN", "vmap(grad)"): (
            per_sample_grad(small_cnn(), torch.randn(16, 1, 8, 8)),
            "BM_PerSampleGradSmallCnn",
        ),
        ("gradients, large CNN", "vmap(grad)"): (
            per_sample_grad(large_cnn(), torch.randn(64, 1, 28, 28)),
            "BM_PerSampleGradLargeCnn",
        ),
        ("Hessian, MLP", "hessian"): (hessian_of(mlp(nn.Tanh)), "BM_HessianMlp"),
        ("nested, MLP", "vmap(vmap(functional_call))"): (nested_vmap(), "BM_NestedVmap"),
    }
    for size in arguments.members:
        for (what, name), run in ensemble_forms(size).items():
            forms[f"{what}, {size} nets", name] = (run, f"BM_Ensemble{what}/{size}")
    side_by_side.compare(forms, arguments)


if __name__ == "__main__":
    side_by_side.keep_memory()
    main()
