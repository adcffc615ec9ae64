"""The operators that random programs consist of, in Python; operators.cc has the same in C++.

A statement of a program is [operator, operands, attributes...]. For each operator there is
  run(operands, *attributes)    what it does,
  propose(draft, x)             the operands and attributes of a random statement whose first operand is value x of the
                                draft (see make_programs.py); None if there is none for a value of this shape,
  margin(operands, *attributes) how far the operands are from where it has no derivative, if there is such a place,
  plain(operands, *attributes)  the formula, where LibTorch's operator has wrong derivatives of a high order.
"""

import math
from collections import namedtuple

import torch
import torch.nn.functional as F

Operator = namedtuple("Operator", "run propose margin plain", defaults=(None, None))


def fill(shape, seed):
    """Numbers in [-1, 1), the same in both languages, and exact in float64."""
    numbers = torch.arange(math.prod(shape), dtype=torch.int64) * 7919 + seed * 104729 + 12345
    return ((numbers * 48271 % 65536).double() / 32768 - 1).reshape(shape)


def away_from_zero(t, *_):
    return t[0].abs()


def top_gap(t, dims, *_):
    """The distance of the two largest elements along `dims`."""
    x = t[0]
    kept = [d for d in range(x.dim()) if d not in dims]
    last = x.permute(kept + list(dims)).flatten(len(kept))
    if last.shape[-1] < 2:
        return torch.ones(())
    top = last.topk(2, dim=-1).values
    return top[..., 0] - top[..., 1]


def pool_gap(t, dims):
    """The same for windows of two along the last `dims` dims."""
    x = t[0]
    for _ in range(dims):
        x = x.unfold(x.dim() - dims, 2, 2)
    windows = x.flatten(x.dim() - dims)
    return top_gap([windows], [windows.dim() - 1])


# --- Proposals


def unary(draft, x):
    return [x]


def broadcast(draft, x, count=2):
    """The other operands have the shape of x, or one that is broadcast with it."""
    shape = list(draft.shape(x))
    others = []
    for _ in range(count - 1):
        other = shape
        if draft.chance(0.4):
            other = [1 if draft.chance(0.5) else n for n in shape][draft.number(0, len(shape)) :]
        others.append(draft.value(other))
    operands = [x] + others
    draft.random.shuffle(operands)
    return operands


def with_dim(draft, x):
    return [x], draft.dim(x)


def with_dims(draft, x):
    """Some dims and keepdim."""
    rank = len(draft.shape(x))
    dims = draft.random.sample(range(rank), draft.number(1, min(rank, 2)))
    return [x], [d - rank if draft.chance(0.3) else d for d in dims], draft.chance(0.4)


def with_dim_keepdim(draft, x):
    return [x], draft.dim(x), draft.chance(0.4)


def reduction(draft):
    return draft.random.choice(["none", "mean", "sum"])


def difference_loss(draft, x):
    return [x, draft.value(draft.shape(x))], reduction(draft)


def class_loss(draft, x):
    shape = draft.shape(x)
    classes = shape[0] if len(shape) == 1 else shape[1]
    target = shape[:1] if len(shape) == 2 else shape[:0] if len(shape) == 1 else shape[:1] + shape[2:]
    return [x], draft.nested(target, 0, classes - 1), reduction(draft)


def only(rank, propose):
    """For values with at least `rank` dims (or of exactly these ranks)."""
    ranks = rank if isinstance(rank, tuple) else range(rank, 9)

    def proposal(draft, x):
        shape = draft.shape(x)
        return propose(draft, x) if len(shape) in ranks and 0 not in shape else None

    return proposal


def reshape(draft, x):
    n = math.prod(draft.shape(x))
    first = draft.random.choice([d for d in range(1, n + 1) if n % d == 0])
    return [x], draft.random.choice([[-1], [first, n // first], [first, -1], [1, n]])


def permute(draft, x):
    rank = len(draft.shape(x))
    return [x], draft.random.sample(range(rank), rank)


def squeeze(draft, x):
    dims = [d for d, n in enumerate(draft.shape(x)) if n == 1]
    return ([x], draft.random.choice(dims)) if dims else None


def expand(draft, x):
    shape = [draft.number(2, 3) if n == 1 else draft.random.choice([-1, n]) for n in draft.shape(x)]
    return [x], ([draft.number(1, 3)] if draft.chance(0.5) or not shape else []) + shape


def narrow(draft, x):
    dim = draft.dim(x)
    n = draft.shape(x)[dim]
    length = draft.number(1, n)
    return [x], dim, draft.number(0, n - length), length


def select(draft, x):
    dim = draft.dim(x)
    n = draft.shape(x)[dim]
    return [x], dim, draft.number(-n, n - 1)


def roll(draft, x):
    return [x], draft.number(-2, 2), draft.dim(x)


def with_index_list(draft, x):
    dim = draft.dim(x)
    return [x], dim, draft.nested([draft.number(1, 3)], 0, draft.shape(x)[dim] - 1)


def gather(draft, x):
    dim, shape = draft.dim(x), list(draft.shape(x))
    limit = shape[dim]
    shape[dim] = draft.number(1, 3)
    return [x], dim, draft.nested(shape, 0, limit - 1)


def scatter_add(draft, x):
    operands, dim, index = gather(draft, x)
    return [x, draft.value(torch.tensor(index).shape)], dim, index


def take_rows(draft, x):
    return [x], draft.nested([draft.number(1, 2)] * draft.number(1, 2), 0, draft.shape(x)[0] - 1)


def index_put(draft, x):
    shape = draft.shape(x)
    index = draft.nested([draft.number(1, 3)], 0, shape[0] - 1)
    return [x, draft.value([len(index), *shape[1:]])], index


def masked_fill(draft, x):
    return [x], draft.nested(draft.shape(x), 0, 1), draft.number(-2, 2) / 2


def joined(draft, x):
    other, dim = list(draft.shape(x)), draft.dim(x)
    other[dim] = draft.number(1, 2)
    return [x, draft.value(other)], dim


def stacked(draft, x):
    rank = len(draft.shape(x))
    return [x, draft.value(draft.shape(x))], draft.number(-rank - 1, rank)


def pad(draft, x):
    return [x], [draft.number(0, 1), draft.number(1, 2)], draft.number(-1, 1) / 2


def matmul(draft, x):
    shape = draft.shape(x)
    inner = shape[-1]
    return [x, draft.value([[inner], [inner, 2], [2, inner, 3]][draft.number(0, 2)])]


def layer_norm(draft, x):
    size = draft.shape(x)[-1]
    return ([x, draft.value([size]), draft.value([size])] if draft.chance(0.6) else [x]) if size > 1 else None


def group_norm(draft, x):
    shape = draft.shape(x)
    if math.prod(shape[2:]) < 2:
        return None
    operands = [x, draft.value([shape[1]]), draft.value([shape[1]])] if draft.chance(0.5) else [x]
    return operands, draft.random.choice([1, shape[1]])


def batch_norm(draft, x):
    shape = draft.shape(x)
    return ([x, draft.value([shape[1]]), draft.value([shape[1]])]) if math.prod(shape) // shape[1] > 2 else None


def linear(draft, x):
    size, out = draft.shape(x)[-1], draft.number(1, 3)
    return [x, draft.value([out, size])] + ([draft.value([out])] if draft.chance(0.6) else [])


def bilinear(draft, x):
    shape = draft.shape(x)
    return [x, draft.value([*shape[:-1], 2]), draft.value([2, shape[-1], 2])]


def convolution(dims):
    def propose(draft, x):
        shape = draft.shape(x)
        if min(shape[-dims:]) < 2:
            return None
        channels, out = shape[-dims - 1], draft.number(1, 2)
        kernel = draft.number(1, 2)
        bias = [draft.value([out])] if draft.chance(0.5) else []
        return [x, draft.value([out, channels] + [kernel] * dims)] + bias, draft.number(1, 2), draft.number(0, 1)

    return propose


def pool(dims):
    return lambda draft, x: [x] if min(draft.shape(x)[-dims:]) > 1 else None


def embedding(draft, x):
    return [x], draft.nested([draft.number(1, 2)] * draft.number(1, 2), 0, draft.shape(x)[0] - 1)


def in_place(draft, x):
    """Writes into a clone that it makes, from an operand of the same or a smaller shape."""
    return [draft.fresh("clone", [x]), draft.value(draft.shape(x)[draft.number(0, len(draft.shape(x))) :])]


def in_place_alone(draft, x):
    return [draft.fresh("clone", [x])]


def in_place_row(draft, x):
    shape = draft.shape(x)
    return [draft.fresh("clone", [x]), draft.value(shape[1:])], draft.number(0, shape[0] - 1)


# --- Runs


def normalized(x, dims):
    return (x - x.mean(dims, keepdim=True)) / (x.var(dims, correction=0, keepdim=True) + 1e-5).sqrt()


def weighted(x, t, shape):
    return x * t[1].reshape(shape) + t[2].reshape(shape) if len(t) > 1 else x


def plain_group_norm(t, groups):
    x = normalized(t[0].reshape(t[0].shape[0], groups, -1), [2]).reshape(t[0].shape)
    return weighted(x, t, [1, -1] + [1] * (x.dim() - 2))


def plain_batch_norm(t):
    return weighted(normalized(t[0], [0, 2][: t[0].dim() - 1]), t, [1, -1] + [1] * (t[0].dim() - 2))


def long(list_of_numbers):
    return torch.tensor(list_of_numbers, dtype=torch.long)


def optional(t, position):
    return t[position] if len(t) > position else None


def set_row(t, index):
    t[0].select(0, index).copy_(t[1])
    return t[0]


OPERATORS = {
    # Of one value, element by element.
    "sin": Operator(lambda t: t[0].sin(), unary),
    "cos": Operator(lambda t: t[0].cos(), unary),
    "exp": Operator(lambda t: t[0].exp(), unary),
    "tanh": Operator(lambda t: t[0].tanh(), unary),
    "sigmoid": Operator(lambda t: t[0].sigmoid(), unary),
    "relu": Operator(lambda t: t[0].relu(), unary, away_from_zero),
    "neg": Operator(lambda t: -t[0], unary),
    "square": Operator(lambda t: t[0].square(), unary),
    "sqrt1": Operator(lambda t: (t[0].square() + 1).sqrt(), unary),
    "softplus": Operator(lambda t: F.softplus(t[0]), unary),
    "abs": Operator(lambda t: t[0].abs(), unary, away_from_zero),
    "erf": Operator(lambda t: t[0].erf(), unary),
    "silu": Operator(lambda t: F.silu(t[0]), unary),
    "gelu": Operator(lambda t: F.gelu(t[0]), unary),
    "elu": Operator(lambda t: F.elu(t[0]), unary, away_from_zero),
    "leaky_relu": Operator(lambda t: F.leaky_relu(t[0], 0.2), unary, away_from_zero),
    "logsigmoid": Operator(lambda t: F.logsigmoid(t[0]), unary),
    "atan": Operator(lambda t: t[0].atan(), unary),
    "clone": Operator(lambda t: t[0].clone(), unary),
    "detach": Operator(lambda t: t[0].detach(), unary),
    # Of several, with broadcasting.
    "add": Operator(lambda t: t[0] + t[1], broadcast),
    "sub": Operator(lambda t: t[0] - t[1], broadcast),
    "mul": Operator(lambda t: t[0] * t[1], broadcast),
    "div": Operator(lambda t: t[0] / (t[1].square() + 1), broadcast),
    "maximum": Operator(lambda t: torch.maximum(t[0], t[1]), broadcast, lambda t: (t[0] - t[1]).abs()),
    "minimum": Operator(lambda t: torch.minimum(t[0], t[1]), broadcast, lambda t: (t[0] - t[1]).abs()),
    "where": Operator(
        lambda t: torch.where(t[0] > 0.1, t[1], t[2]),
        lambda draft, x: broadcast(draft, x, 3),
        lambda t: (t[0] - 0.1).abs(),
    ),
    "addcmul": Operator(lambda t: torch.addcmul(t[0], t[1], t[2]), lambda draft, x: broadcast(draft, x, 3)),
    # Products.
    "matmul": Operator(lambda t: t[0].matmul(t[1]), only(1, matmul)),
    "bmm": Operator(
        lambda t: t[0].bmm(t[1]),
        only((3,), lambda draft, x: [x, draft.value([draft.shape(x)[0], draft.shape(x)[2], 2])]),
    ),
    "mv": Operator(lambda t: t[0].mv(t[1]), only((2,), lambda draft, x: [x, draft.value(draft.shape(x)[1:])])),
    "dot": Operator(lambda t: t[0].dot(t[1]), only((1,), lambda draft, x: [x, draft.value(draft.shape(x))])),
    "outer": Operator(lambda t: torch.outer(t[0], t[1]), only((1,), lambda draft, x: [x, draft.value([2])])),
    "addmm": Operator(
        lambda t: torch.addmm(t[0], t[1], t[2]),
        only((2,), lambda draft, x: [draft.value([2]), x, draft.value([draft.shape(x)[1], 2])]),
    ),
    "einsum": Operator(
        lambda t: torch.einsum("ij,kj->ik", t[0], t[1]),
        only((2,), lambda draft, x: [x, draft.value([2, draft.shape(x)[1]])]),
    ),
    # Reductions.
    "sum_all": Operator(lambda t: t[0].sum(), unary),
    "mean_all": Operator(lambda t: t[0].mean(), only(0, unary)),
    "prod_all": Operator(lambda t: t[0].prod(), unary),
    "sum": Operator(lambda t, dims, keepdim: t[0].sum(dims, keepdim), only(1, with_dims)),
    "mean": Operator(lambda t, dims, keepdim: t[0].mean(dims, keepdim), only(1, with_dims)),
    "logsumexp": Operator(lambda t, dims, keepdim: t[0].logsumexp(dims, keepdim), only(1, with_dims)),
    "amax": Operator(
        lambda t, dims, keepdim: t[0].amax(dims, keepdim),
        only(1, with_dims),
        lambda t, dims, _: top_gap(t, [d % t[0].dim() for d in dims]),
    ),
    "amin": Operator(
        lambda t, dims, keepdim: t[0].amin(dims, keepdim),
        only(1, with_dims),
        lambda t, dims, _: top_gap([-t[0]], [d % t[0].dim() for d in dims]),
    ),
    "prod": Operator(lambda t, dim, keepdim: t[0].prod(dim, keepdim), only(1, with_dim_keepdim)),
    "max": Operator(
        lambda t, dim, keepdim: t[0].max(dim, keepdim).values,
        only(1, with_dim_keepdim),
        lambda t, dim, _: top_gap(t, [dim % t[0].dim()]),
    ),
    "var": Operator(lambda t, dim: t[0].var(dim, correction=0), only(1, with_dim)),
    "cumsum": Operator(lambda t, dim: t[0].cumsum(dim), only(1, with_dim)),
    "sort": Operator(
        lambda t, dim: t[0].sort(dim).values,
        only(1, with_dim),
        lambda t, dim: t[0].sort(dim).values.diff(dim=dim) if t[0].shape[dim] > 1 else torch.ones(()),
    ),
    # Shapes and places.
    "reshape": Operator(lambda t, shape: t[0].reshape(shape), only(0, reshape)),
    "transpose": Operator(
        lambda t, a, b: t[0].transpose(a, b), only(2, lambda draft, x: ([x], draft.dim(x), draft.dim(x)))
    ),
    "permute": Operator(lambda t, dims: t[0].permute(dims), only(1, permute)),
    "unsqueeze": Operator(
        lambda t, dim: t[0].unsqueeze(dim),
        lambda draft, x: ([x], draft.number(-len(draft.shape(x)) - 1, len(draft.shape(x)))),
    ),
    "squeeze": Operator(lambda t, dim: t[0].squeeze(dim), squeeze),
    "expand": Operator(lambda t, shape: t[0].expand(shape), expand),
    "cat": Operator(lambda t, dim: torch.cat(t, dim), only(1, joined)),
    "stack": Operator(lambda t, dim: torch.stack(t, dim), stacked),
    "narrow": Operator(lambda t, dim, start, length: t[0].narrow(dim, start, length), only(1, narrow)),
    "select": Operator(lambda t, dim, index: t[0].select(dim, index), only(1, select)),
    "flip": Operator(lambda t, dim: t[0].flip(dim), only(1, with_dim)),
    "roll": Operator(lambda t, shift, dim: t[0].roll(shift, dim), only(1, roll)),
    "index_select": Operator(lambda t, dim, index: t[0].index_select(dim, long(index)), only(1, with_index_list)),
    "gather": Operator(lambda t, dim, index: t[0].gather(dim, long(index)), only(1, gather)),
    "scatter_add": Operator(lambda t, dim, index: t[0].scatter_add(dim, long(index), t[1]), only(1, scatter_add)),
    "index": Operator(lambda t, index: t[0][long(index)], only(1, take_rows)),
    "index_put": Operator(lambda t, index: t[0].index_put([long(index)], t[1], True), only(1, index_put)),
    "masked_fill": Operator(lambda t, mask, number: t[0].masked_fill(long(mask) == 1, number), only(0, masked_fill)),
    "tril": Operator(lambda t: t[0].tril(), only(2, unary)),
    "triu": Operator(lambda t: t[0].triu(), only(2, unary)),
    "diag": Operator(lambda t: t[0].diag(), only((1, 2), unary)),
    "pad": Operator(lambda t, widths, number: F.pad(t[0], widths, value=number), only(1, pad)),
    "repeat": Operator(lambda t: t[0].repeat([2] + [1] * (t[0].dim() - 1)), only(1, unary)),
    "unfold": Operator(lambda t: t[0].unfold(-1, 2, 1), only(1, pool(1))),
    # Norms.
    "softmax": Operator(lambda t, dim: t[0].softmax(dim), only(1, with_dim)),
    "log_softmax": Operator(lambda t, dim: t[0].log_softmax(dim), only(1, with_dim)),
    "layer_norm": Operator(
        lambda t: F.layer_norm(t[0], t[0].shape[-1:], optional(t, 1), optional(t, 2)),
        only(1, layer_norm),
        plain=lambda t: weighted(normalized(t[0], [-1]), t, [-1]),
    ),
    "group_norm": Operator(
        lambda t, groups: F.group_norm(t[0], groups, optional(t, 1), optional(t, 2)),
        only((2, 3), group_norm),
        plain=plain_group_norm,
    ),
    "batch_norm": Operator(
        lambda t: F.batch_norm(t[0], None, None, t[1], t[2], training=True),
        only((2, 3), batch_norm),
        plain=plain_batch_norm,
    ),
    # Losses.
    "mse_loss": Operator(lambda t, how: F.mse_loss(t[0], t[1], reduction=how), only(0, difference_loss)),
    "smooth_l1_loss": Operator(
        lambda t, how: F.smooth_l1_loss(t[0], t[1], reduction=how),
        only(0, difference_loss),
        lambda t, _: ((t[0] - t[1]).abs() - 1).abs(),
    ),
    "huber_loss": Operator(
        lambda t, how: F.huber_loss(t[0], t[1], reduction=how, delta=0.5),
        only(0, difference_loss),
        lambda t, _: ((t[0] - t[1]).abs() - 0.5).abs(),
    ),
    "bce_with_logits": Operator(
        lambda t, how: F.binary_cross_entropy_with_logits(t[0], t[1], reduction=how), only(0, difference_loss)
    ),
    "cross_entropy": Operator(
        lambda t, target, how: F.cross_entropy(t[0], long(target), reduction=how), only((1, 2, 3), class_loss)
    ),
    "nll_loss": Operator(
        lambda t, target, how: F.nll_loss(t[0], long(target), reduction=how), only((1, 2, 3), class_loss)
    ),
    # Layers.
    "linear": Operator(lambda t: F.linear(t[0], t[1], optional(t, 2)), only(1, linear)),
    "bilinear": Operator(lambda t: F.bilinear(t[0], t[1], t[2]), only(1, bilinear)),
    "conv1d": Operator(
        lambda t, stride, padding: F.conv1d(t[0], t[1], optional(t, 2), stride, padding), only((2, 3), convolution(1))
    ),
    "conv2d": Operator(
        lambda t, stride, padding: F.conv2d(t[0], t[1], optional(t, 2), stride, padding), only((3, 4), convolution(2))
    ),
    "avg_pool1d": Operator(lambda t: F.avg_pool1d(t[0], 2), only((2, 3), pool(1))),
    "max_pool1d": Operator(lambda t: F.max_pool1d(t[0], 2), only((2, 3), pool(1)), lambda t: pool_gap(t, 1)),
    "max_pool2d": Operator(lambda t: F.max_pool2d(t[0], 2), only((3, 4), pool(2)), lambda t: pool_gap(t, 2)),
    "embedding": Operator(lambda t, index: F.embedding(long(index), t[0]), only((2,), embedding)),
    # In place.
    "add_": Operator(lambda t: t[0].add_(t[1]), in_place),
    "mul_": Operator(lambda t: t[0].mul_(t[1]), in_place),
    "copy_": Operator(lambda t: t[0].copy_(t[1]), in_place),
    "relu_": Operator(lambda t: t[0].relu_(), in_place_alone, away_from_zero),
    "sin_": Operator(lambda t: t[0].sin_(), in_place_alone),
    "zero_": Operator(lambda t: t[0].zero_(), in_place_alone),
    "set_row": Operator(set_row, only(1, in_place_row)),
    # What never stands in a program by chance: constants and misuse.
    "fill": Operator(lambda t, shape, seed: fill(shape, seed), None),
    "integers": Operator(lambda t, shape, seed: (fill(shape, seed) * 5).long(), None),
    "item": Operator(lambda t: torch.full((), t[0].sum().item(), dtype=torch.float64), None),
    "nonzero": Operator(lambda t: t[0].nonzero().double(), None),
    "mask": Operator(lambda t: t[0][t[0] > 0], None),
    "random": Operator(lambda t: t[0] * torch.rand_like(t[0]), None),
}
