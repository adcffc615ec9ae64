// The operators of random programs; operators.py has the same in Python.
#include <ATen/ATen.h>

#include <functional>
#include <map>

#include "tests/programs/program.h"

namespace graft::testing {
namespace {

/// A nested list of integers as a tensor.
Tensor index_tensor(const Json& list) {
  if (!list.is_array()) return at::scalar_tensor(list.get<int64_t>(), at::kLong);
  std::vector<Tensor> rows;
  for (const Json& row : list) rows.push_back(index_tensor(row));
  return at::stack(rows);
}

/// The operands and the attributes of a statement.
struct Call {
  const Tensor& operator[](std::size_t operand) const { return operands[operand]; }
  Tensor optional(std::size_t operand) const { return operand < operands.size() ? operands[operand] : Tensor(); }

  int64_t integer(std::size_t position) const { return attribute(position).get<int64_t>(); }
  double number(std::size_t position) const { return attribute(position).get<double>(); }
  bool flag(std::size_t position) const { return attribute(position).get<bool>(); }
  std::vector<int64_t> integers(std::size_t position) const { return attribute(position).get<std::vector<int64_t>>(); }
  Tensor index(std::size_t position) const { return index_tensor(attribute(position)); }
  int64_t reduction(std::size_t position) const {
    const auto name = attribute(position).get<std::string>();
    return name == "none" ? at::Reduction::None : name == "mean" ? at::Reduction::Mean : at::Reduction::Sum;
  }
  const Json& attribute(std::size_t position) const { return statement.at(2 + position); }

  const Json& statement;
  const Values& operands;
};

using Operator = std::function<Tensor(const Call&)>;

const std::map<std::string, Operator> kOperators = {
    // Of one value, element by element.
    {"sin", [](auto& t) { return t[0].sin(); }},
    {"cos", [](auto& t) { return t[0].cos(); }},
    {"exp", [](auto& t) { return t[0].exp(); }},
    {"tanh", [](auto& t) { return t[0].tanh(); }},
    {"sigmoid", [](auto& t) { return t[0].sigmoid(); }},
    {"relu", [](auto& t) { return t[0].relu(); }},
    {"neg", [](auto& t) { return -t[0]; }},
    {"square", [](auto& t) { return t[0].square(); }},
    {"sqrt1", [](auto& t) { return (t[0].square() + 1).sqrt(); }},
    {"softplus", [](auto& t) { return at::softplus(t[0]); }},
    {"abs", [](auto& t) { return t[0].abs(); }},
    {"erf", [](auto& t) { return t[0].erf(); }},
    {"silu", [](auto& t) { return at::silu(t[0]); }},
    {"gelu", [](auto& t) { return at::gelu(t[0]); }},
    {"elu", [](auto& t) { return at::elu(t[0]); }},
    {"leaky_relu", [](auto& t) { return at::leaky_relu(t[0], 0.2); }},
    {"logsigmoid", [](auto& t) { return at::log_sigmoid(t[0]); }},
    {"atan", [](auto& t) { return t[0].atan(); }},
    {"clone", [](auto& t) { return t[0].clone(); }},
    {"detach", [](auto& t) { return t[0].detach(); }},
    // Of several, with broadcasting.
    {"add", [](auto& t) { return t[0] + t[1]; }},
    {"sub", [](auto& t) { return t[0] - t[1]; }},
    {"mul", [](auto& t) { return t[0] * t[1]; }},
    {"div", [](auto& t) { return t[0] / (t[1].square() + 1); }},
    {"maximum", [](auto& t) { return at::maximum(t[0], t[1]); }},
    {"minimum", [](auto& t) { return at::minimum(t[0], t[1]); }},
    {"where", [](auto& t) { return at::where(t[0] > 0.1, t[1], t[2]); }},
    {"addcmul", [](auto& t) { return at::addcmul(t[0], t[1], t[2]); }},
    // Products.
    {"matmul", [](auto& t) { return t[0].matmul(t[1]); }},
    {"bmm", [](auto& t) { return t[0].bmm(t[1]); }},
    {"mv", [](auto& t) { return t[0].mv(t[1]); }},
    {"dot", [](auto& t) { return t[0].dot(t[1]); }},
    {"outer", [](auto& t) { return at::outer(t[0], t[1]); }},
    {"addmm", [](auto& t) { return at::addmm(t[0], t[1], t[2]); }},
    {"einsum", [](auto& t) { return at::einsum("ij,kj->ik", {t[0], t[1]}); }},
    // Reductions.
    {"sum_all", [](auto& t) { return t[0].sum(); }},
    {"mean_all", [](auto& t) { return t[0].mean(); }},
    {"prod_all", [](auto& t) { return t[0].prod(); }},
    {"sum", [](auto& t) { return t[0].sum(t.integers(0), t.flag(1)); }},
    {"mean", [](auto& t) { return t[0].mean(t.integers(0), t.flag(1)); }},
    {"logsumexp", [](auto& t) { return t[0].logsumexp(t.integers(0), t.flag(1)); }},
    {"amax", [](auto& t) { return t[0].amax(t.integers(0), t.flag(1)); }},
    {"amin", [](auto& t) { return t[0].amin(t.integers(0), t.flag(1)); }},
    {"prod", [](auto& t) { return t[0].prod(t.integer(0), t.flag(1)); }},
    {"max", [](auto& t) { return std::get<0>(t[0].max(t.integer(0), t.flag(1))); }},
    {"var", [](auto& t) { return t[0].var(t.integer(0), /*unbiased=*/false); }},
    {"cumsum", [](auto& t) { return t[0].cumsum(t.integer(0)); }},
    {"sort", [](auto& t) { return std::get<0>(t[0].sort(t.integer(0))); }},
    // Shapes and places.
    {"reshape", [](auto& t) { return t[0].reshape(t.integers(0)); }},
    {"transpose", [](auto& t) { return t[0].transpose(t.integer(0), t.integer(1)); }},
    {"permute", [](auto& t) { return t[0].permute(t.integers(0)); }},
    {"unsqueeze", [](auto& t) { return t[0].unsqueeze(t.integer(0)); }},
    {"squeeze", [](auto& t) { return t[0].squeeze(t.integer(0)); }},
    {"expand", [](auto& t) { return t[0].expand(t.integers(0)); }},
    {"cat", [](auto& t) { return at::cat(t.operands, t.integer(0)); }},
    {"stack", [](auto& t) { return at::stack(t.operands, t.integer(0)); }},
    {"narrow", [](auto& t) { return t[0].narrow(t.integer(0), t.integer(1), t.integer(2)); }},
    {"select", [](auto& t) { return t[0].select(t.integer(0), t.integer(1)); }},
    {"flip", [](auto& t) { return t[0].flip(t.integer(0)); }},
    {"roll", [](auto& t) { return t[0].roll(t.integer(0), t.integer(1)); }},
    {"index_select", [](auto& t) { return t[0].index_select(t.integer(0), t.index(1)); }},
    {"gather", [](auto& t) { return t[0].gather(t.integer(0), t.index(1)); }},
    {"scatter_add", [](auto& t) { return t[0].scatter_add(t.integer(0), t.index(1), t[1]); }},
    {"index", [](auto& t) { return t[0].index({t.index(0)}); }},
    {"index_put", [](auto& t) { return t[0].index_put({t.index(0)}, t[1], /*accumulate=*/true); }},
    {"masked_fill", [](auto& t) { return t[0].masked_fill(t.index(0) == 1, t.number(1)); }},
    {"tril", [](auto& t) { return t[0].tril(); }},
    {"triu", [](auto& t) { return t[0].triu(); }},
    {"diag", [](auto& t) { return t[0].diag(); }},
    {"pad", [](auto& t) { return at::pad(t[0], t.integers(0), "constant", t.number(1)); }},
    {"repeat",
     [](auto& t) {
       std::vector<int64_t> times(t[0].dim(), 1);
       times[0] = 2;
       return t[0].repeat(times);
     }},
    {"unfold", [](auto& t) { return t[0].unfold(-1, 2, 1); }},
    // Norms.
    {"softmax", [](auto& t) { return t[0].softmax(t.integer(0)); }},
    {"log_softmax", [](auto& t) { return t[0].log_softmax(t.integer(0)); }},
    {"layer_norm", [](auto& t) { return at::layer_norm(t[0], {t[0].size(-1)}, t.optional(1), t.optional(2)); }},
    {"group_norm", [](auto& t) { return at::group_norm(t[0], t.integer(0), t.optional(1), t.optional(2)); }},
    {"batch_norm",
     [](auto& t) {
       return at::batch_norm(t[0], t[1], t[2], {}, {}, /*training=*/true, /*momentum=*/0.1, /*eps=*/1e-5,
                             /*cudnn_enabled=*/true);
     }},
    // Losses.
    {"mse_loss", [](auto& t) { return at::mse_loss(t[0], t[1], t.reduction(0)); }},
    {"smooth_l1_loss", [](auto& t) { return at::smooth_l1_loss(t[0], t[1], t.reduction(0)); }},
    {"huber_loss", [](auto& t) { return at::huber_loss(t[0], t[1], t.reduction(0), 0.5); }},
    {"bce_with_logits",
     [](auto& t) { return at::binary_cross_entropy_with_logits(t[0], t[1], {}, {}, t.reduction(0)); }},
    {"cross_entropy", [](auto& t) { return at::cross_entropy_loss(t[0], t.index(0), {}, t.reduction(1)); }},
    {"nll_loss", [](auto& t) { return at::nll_loss_nd(t[0], t.index(0), {}, t.reduction(1)); }},
    // Layers.
    {"linear", [](auto& t) { return at::linear(t[0], t[1], t.optional(2)); }},
    {"bilinear", [](auto& t) { return at::bilinear(t[0], t[1], t[2], {}); }},
    {"conv1d", [](auto& t) { return at::conv1d(t[0], t[1], t.optional(2), t.integer(0), t.integer(1)); }},
    {"conv2d", [](auto& t) { return at::conv2d(t[0], t[1], t.optional(2), t.integer(0), t.integer(1)); }},
    {"avg_pool1d", [](auto& t) { return at::avg_pool1d(t[0], 2); }},
    {"max_pool1d", [](auto& t) { return at::max_pool1d(t[0], 2); }},
    {"max_pool2d", [](auto& t) { return at::max_pool2d(t[0], 2); }},
    {"embedding", [](auto& t) { return at::embedding(t[0], t.index(0)); }},
    // In place.
    {"add_", [](auto& t) { return t[0].add_(t[1]); }},
    {"mul_", [](auto& t) { return t[0].mul_(t[1]); }},
    {"copy_", [](auto& t) { return t[0].copy_(t[1]); }},
    {"relu_", [](auto& t) { return t[0].relu_(); }},
    {"sin_", [](auto& t) { return t[0].sin_(); }},
    {"zero_", [](auto& t) { return t[0].zero_(); }},
    {"set_row",
     [](auto& t) {
       t[0].select(0, t.integer(0)).copy_(t[1]);
       return t[0];
     }},
    // Constants and misuse.
    {"fill", [](auto& t) { return fill(t.integers(0), t.integer(1)); }},
    {"integers", [](auto& t) { return (fill(t.integers(0), t.integer(1)) * 5).to(at::kLong); }},
    {"item", [](auto& t) { return at::scalar_tensor(t[0].sum().template item<double>(), at::kDouble); }},
    {"nonzero", [](auto& t) { return t[0].nonzero().to(at::kDouble); }},
    {"mask", [](auto& t) { return t[0].index({t[0] > 0}); }},
    {"random", [](auto& t) { return t[0] * at::rand_like(t[0]); }},
};

}  // namespace

Tensor fill(at::IntArrayRef shape, int64_t seed) {
  const Tensor numbers = at::arange(c10::multiply_integers(shape), at::kLong) * 7919 + (seed * 104729 + 12345);
  return ((numbers * 48271).remainder(65536).to(at::kDouble) / 32768 - 1).reshape(shape);
}

Tensor run_operator(const Json& statement, const Values& operands) {
  return kOperators.at(statement.at(0).get<std::string>())({statement, operands});
}

}  // namespace graft::testing
