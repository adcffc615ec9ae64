#!/usr/bin/env python3
"""Writes jvp_values.json: what Python's torch.func.jvp gives for functions of the catalog, which has them by name.

    ~/.cache/graft/venv/bin/python tests/operators/make_jvp_values.py

Each entry holds the inputs, the directions of the first of them, and the derivative, all in double.
"""

import json
import pathlib

import torch
import torch.nn.functional as F

WEIGHTS = torch.tensor([0.5, 1.5, 2.0], dtype=torch.double)
ENTRIES = {}


def floats(*shapes):
    return [torch.randn(shape, dtype=torch.double) for shape in shapes]


def fractions(*shapes):
    return [torch.rand(shape, dtype=torch.double) * 0.8 + 0.1 for shape in shapes]


def integers(bound, shape):
    return [torch.randint(bound, shape)]


def signs(shape):
    return [torch.randint(2, shape).double() * 2 - 1]


def add(name, inputs, f, differentiable=None):
    """Adds a function of the inputs; the first `differentiable` of them have directions."""
    if differentiable is None:
        differentiable = sum(x.is_floating_point() for x in inputs)
    inputs = [x.clone() for x in inputs]
    moving, fixed = inputs[:differentiable], inputs[differentiable:]
    directions = [torch.randn_like(x) for x in moving]
    _, tangent = torch.func.jvp(lambda *x: f(*x, *fixed), tuple(moving), tuple(directions))
    ENTRIES[name] = {
        "inputs": [as_json(x) for x in inputs],
        "directions": [as_json(x) for x in directions],
        "tangent": as_json(tangent),
    }


def as_json(tensor):
    values = tensor.reshape(-1).tolist()
    if tensor.is_floating_point():
        values = [float(f"{value:.12g}") for value in values]
    return {"shape": list(tensor.shape), "values": values}


def add_each(name, inputs, f, differentiable=None):
    for reduction in ("mean", "sum", "none"):
        add(f"{name}, {reduction}", inputs, lambda *x, r=reduction: f(*x, reduction=r), differentiable)


def add_activations():
    (x,) = floats((2, 4))
    add("celu", [x], lambda x: F.celu(x, 0.7))
    add("elu", [x], lambda x: F.elu(x, 0.7))
    add("gelu", [x], F.gelu)
    add("gelu, tanh", [x], lambda x: F.gelu(x, approximate="tanh"))
    add("glu", [x], lambda x: F.glu(x, 1))
    add("hardshrink", [x], lambda x: F.hardshrink(x, 0.4))
    add("hardtanh", [x], lambda x: F.hardtanh(x, -1, 0.5))
    add("leaky_relu", [x], F.leaky_relu)
    add("log_softmax", [x], lambda x: F.log_softmax(x, 1))
    add("logsigmoid", [x], F.logsigmoid)
    add("mish", [x], F.mish)
    add("prelu", floats((2, 4), (1,)), F.prelu)
    add("prelu, by channels", floats((2, 3, 2), (3,)), F.prelu)
    add("relu", [x], F.relu)
    add("relu6", [x], lambda x: F.relu6(x * 5))
    add("rrelu", [x], lambda x: F.rrelu(x, 0.1, 0.4))
    add("selu", [x], F.selu)
    add("silu", [x], F.silu)
    add("softmax", [x], lambda x: F.softmax(x, 1))
    add("softmin", [x], lambda x: F.softmin(x, 1))
    add("softplus", [x], lambda x: F.softplus(x, 2))
    add("softshrink", [x], lambda x: F.softshrink(x, 0.4))
    add("softsign", [x], F.softsign)
    add("tanhshrink", [x], F.tanhshrink)
    add("threshold", [x], lambda x: F.threshold(x, 0.1, 2))


def add_losses():
    two, shares = floats((2, 3), (2, 3)), fractions((2, 3), (2, 3))
    classes = floats((4, 3)) + integers(3, (4,))
    three = floats((2, 3), (2, 3), (2, 3))
    add_each("l1_loss", two, F.l1_loss)
    add_each("mse_loss", two, F.mse_loss)
    add_each("smooth_l1_loss", two, lambda *x, reduction: F.smooth_l1_loss(*x, reduction=reduction, beta=0.5))
    add_each("huber_loss", two, lambda *x, reduction: F.huber_loss(*x, reduction=reduction, delta=0.5))
    add_each("poisson_nll_loss", shares, F.poisson_nll_loss)
    add("poisson_nll_loss, full, of rates", shares,
        lambda x, y: F.poisson_nll_loss(x, y * 5, log_input=False, full=True))
    add_each("kl_div", shares, lambda x, y, reduction: F.kl_div(x.log(), y, reduction=reduction))
    add("kl_div, batchmean, of logarithms", two, lambda x, y: F.kl_div(x, y, reduction="batchmean", log_target=True))
    add_each("binary_cross_entropy", shares,
             lambda *x, reduction: F.binary_cross_entropy(*x, WEIGHTS, reduction=reduction), 1)
    add_each("binary_cross_entropy_with_logits", floats((2, 3)) + fractions((2, 3)),
             lambda *x, reduction: F.binary_cross_entropy_with_logits(
                 *x, WEIGHTS, reduction=reduction, pos_weight=WEIGHTS))
    add_each("nll_loss", classes,
             lambda *x, reduction: F.nll_loss(*x, WEIGHTS, reduction=reduction, ignore_index=1))
    add("nll_loss, of images", floats((2, 3, 2, 2)) + integers(3, (2, 2, 2)), F.nll_loss)
    add_each("cross_entropy", classes,
             lambda *x, reduction: F.cross_entropy(*x, WEIGHTS, reduction=reduction, ignore_index=1))
    add("cross_entropy, smooth labels", classes, lambda *x: F.cross_entropy(*x, WEIGHTS, label_smoothing=0.2))
    add("cross_entropy, of images", floats((2, 3, 2, 2)) + integers(3, (2, 2, 2)), F.cross_entropy)
    add("cross_entropy, of one sample", floats((3,)) + integers(3, ()), F.cross_entropy)
    add("cross_entropy, of probabilities", floats((2, 3)) + fractions((2, 3)), F.cross_entropy)
    add_each("hinge_embedding_loss", floats((2, 3)) + signs((2, 3)), F.hinge_embedding_loss, 1)
    add_each("soft_margin_loss", floats((2, 3)) + signs((2, 3)), F.soft_margin_loss, 1)
    add_each("multilabel_soft_margin_loss", floats((2, 3)) + fractions((2, 3)),
             lambda *x, reduction: F.multilabel_soft_margin_loss(*x, WEIGHTS, reduction=reduction))
    add_each("cosine_embedding_loss", two + signs((2,)), F.cosine_embedding_loss, 2)
    add_each("margin_ranking_loss", floats((3,), (3,)) + signs((3,)),
             lambda *x, reduction: F.margin_ranking_loss(*x, reduction=reduction, margin=0.3), 2)
    add_each("triplet_margin_loss", three,
             lambda *x, reduction: F.triplet_margin_loss(*x, reduction=reduction, margin=2))
    add("triplet_margin_loss, with swap", three, lambda *x: F.triplet_margin_loss(*x, swap=True, p=3))
    add_each("triplet_margin_with_distance_loss", three,
             lambda *x, reduction: F.triplet_margin_with_distance_loss(*x, reduction=reduction, margin=2, swap=True))
    add("cosine_similarity", two, F.cosine_similarity)
    add("pairwise_distance", two, F.pairwise_distance)
    add("pairwise_distance, of order 3", two, lambda x, y: F.pairwise_distance(x, y, 3, keepdim=True))


def add_layers():
    add("linear", floats((2, 3), (4, 3), (4,)), F.linear)
    add("linear, no bias", floats((2, 3), (4, 3)), F.linear)
    add("bilinear", floats((2, 3), (2, 2), (4, 3, 2), (4,)), F.bilinear)
    add("conv1d", floats((2, 2, 5), (3, 2, 2), (3,)), F.conv1d)
    add("conv2d", floats((1, 2, 4, 4), (3, 2, 2, 2), (3,)), F.conv2d)
    add("conv2d, in groups", floats((1, 2, 5, 5), (4, 1, 2, 2), (4,)),
        lambda *x: F.conv2d(*x, stride=2, padding=1, dilation=2, groups=2))
    add("conv2d, padded to the same size", floats((1, 2, 4, 4), (3, 2, 2, 2), (3,)),
        lambda *x: F.conv2d(*x, padding="same"))
    add("conv3d", floats((1, 2, 3, 3, 2), (2, 2, 2, 2, 2), (2,)), F.conv3d)
    add("conv_transpose1d", floats((2, 2, 4), (2, 3, 2), (3,)), F.conv_transpose1d)
    add("conv_transpose2d", floats((1, 2, 3, 3), (2, 3, 2, 2), (3,)), F.conv_transpose2d)
    add("conv_transpose2d, in groups", floats((1, 2, 3, 3), (2, 2, 2, 2), (4,)),
        lambda *x: F.conv_transpose2d(*x, stride=2, padding=1, output_padding=1, groups=2))
    add("conv_transpose3d", floats((1, 2, 2, 2, 2), (2, 2, 2, 2, 2), (2,)), F.conv_transpose3d)
    add("embedding", floats((4, 3)) + integers(4, (2, 3)), lambda weight, i: F.embedding(i, weight))
    add("embedding, with padding", floats((4, 3)) + integers(4, (2, 3)), lambda weight, i: F.embedding(i, weight, 1))
    statistics = floats((4, 3, 2), (3,), (3,), (3,), (3,))
    add("batch_norm", statistics, lambda x, w, b, m, v: F.batch_norm(x, m.exp(), v.exp(), w, b), 3)
    add("batch_norm, in training, no statistics", floats((4, 3, 2), (3,), (3,)),
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True))
    add("instance_norm", floats((2, 3, 4), (3,), (3,)), lambda x, w, b: F.instance_norm(x, None, None, w, b))
    add("layer_norm", floats((2, 2, 3), (2, 3), (2, 3)), lambda x, w, b: F.layer_norm(x, (2, 3), w, b))
    add("layer_norm, no weight", floats((2, 4)), lambda x: F.layer_norm(x, (4,)))
    add("group_norm", floats((2, 4, 3), (4,), (4,)), lambda x, w, b: F.group_norm(x, 2, w, b))
    add("local_response_norm", floats((2, 4, 3)), lambda x: F.local_response_norm(x, 3))
    add("normalize", floats((2, 4)), F.normalize)
    add("normalize, of order 3", floats((2, 4)), lambda x: F.normalize(x, 3, 0))


def add_pooling():
    line, image, volume = floats((1, 2, 6), (1, 2, 4, 5), (1, 1, 4, 4, 4))
    add("avg_pool1d", [line], lambda x: F.avg_pool1d(x, 3, 2, 1))
    add("avg_pool2d", [image], lambda x: F.avg_pool2d(x, 2, 2, 1, ceil_mode=True, count_include_pad=False))
    add("avg_pool3d", [volume], lambda x: F.avg_pool3d(x, 2, 1, divisor_override=3))
    add("adaptive_avg_pool1d", [line], lambda x: F.adaptive_avg_pool1d(x, 4))
    add("adaptive_avg_pool2d", [image], lambda x: F.adaptive_avg_pool2d(x, (3, 2)))
    add("adaptive_avg_pool3d", [volume], lambda x: F.adaptive_avg_pool3d(x, (2, 3, 2)))
    add("adaptive_max_pool1d", [line], lambda x: F.adaptive_max_pool1d(x, 4))
    add("adaptive_max_pool2d", [image], lambda x: F.adaptive_max_pool2d(x, (3, 2)))
    add("adaptive_max_pool3d", [volume], lambda x: F.adaptive_max_pool3d(x, (2, 3, 2)))
    add("lp_pool1d", [line], lambda x: F.lp_pool1d(x, 2, 2))
    add("lp_pool2d", [image], lambda x: F.lp_pool2d(x, 2, 2))
    add("lp_pool3d", [volume], lambda x: F.lp_pool3d(x, 2, 2))
    add("max_pool1d", [line], lambda x: F.max_pool1d(x, 2))
    add("max_pool1d, dilated", [line], lambda x: F.max_pool1d(x, 2, padding=1, dilation=2, ceil_mode=True))
    add("max_pool2d", [image], lambda x: F.max_pool2d(x, 2))
    add("max_pool2d, dilated", [image], lambda x: F.max_pool2d(x, 2, padding=1, dilation=2, ceil_mode=True))
    add("max_pool3d", [volume], lambda x: F.max_pool3d(x, 2))


def add_spatial():
    for mode in ("constant", "reflect", "replicate", "circular"):
        for dims, shape, pad in (("1d", (2, 2, 4), (1, 2)), ("2d", (1, 2, 3, 4), (1, 2, 0, 1)),
                                 ("3d", (1, 1, 3, 2, 3), (1, 0, 0, 1, 1, 1))):
            add(f"pad, {mode}, {dims}", floats(shape), lambda x, m=mode, p=pad: F.pad(x, p, m))
    add("interpolate, nearest, 1d", floats((2, 1, 4)), lambda x: F.interpolate(x, 7))
    add("interpolate, nearest-exact, 1d", floats((2, 1, 4)), lambda x: F.interpolate(x, 7, mode="nearest-exact"))
    add("interpolate, linear", floats((2, 1, 4)), lambda x: F.interpolate(x, 7, mode="linear"))
    add("interpolate, bilinear", floats((1, 1, 3, 3)), lambda x: F.interpolate(x, (4, 5), mode="bilinear"))
    add("interpolate, bilinear, smoothed", floats((1, 1, 5, 5)),
        lambda x: F.interpolate(x, (3, 2), mode="bilinear", antialias=True))
    add("interpolate, bicubic", floats((1, 1, 4, 4)), lambda x: F.interpolate(x, (5, 6), mode="bicubic"))
    add("interpolate, trilinear", floats((1, 1, 2, 2, 3)), lambda x: F.interpolate(x, (3, 3, 4), mode="trilinear"))
    add("interpolate, area, 2d", floats((1, 1, 4, 5)), lambda x: F.interpolate(x, (3, 2), mode="area"))
    add("affine_grid, 2d", floats((1, 2, 3)), lambda x: F.affine_grid(x, (1, 1, 3, 2), align_corners=False))
    add("affine_grid, 3d", floats((1, 3, 4)), lambda x: F.affine_grid(x, (1, 1, 2, 3, 2), align_corners=False))
    add("fold", floats((1, 8, 4)), lambda x: F.fold(x, (3, 3), (2, 2)))
    add("unfold", floats((1, 2, 4, 3)), lambda x: F.unfold(x, (2, 2), padding=1, stride=2))
    add("pixel_shuffle", floats((1, 4, 2, 3)), lambda x: F.pixel_shuffle(x, 2))
    add("pixel_unshuffle", floats((1, 1, 4, 2)), lambda x: F.pixel_unshuffle(x, 2))


def main():
    torch.manual_seed(0)
    for add_some in (add_activations, add_losses, add_layers, add_pooling, add_spatial):
        add_some()
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(ENTRIES.items())]
    path = pathlib.Path(__file__).with_name("jvp_values.json")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{path}: {len(lines)} functions")


if __name__ == "__main__":
    main()
