// The code of docs/transforms.md, as one program that checks what it gets.
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include "functional/batch_norm.h"
#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/hvp.h"
#include "functional/jvp.h"
#include "functional/linearize.h"
#include "functional/module_state.h"
#include "functional/stop_gradient.h"
#include "functional/vjp.h"
#include "functional/with_aux.h"
#include "tensordict/pointwise.h"
#include "vmap/fallback.h"
#include "vmap/jacobian.h"
#include "vmap/stacked_state.h"
#include "vmap/vmap.h"

using namespace graft;  // NOLINT: as in the page

namespace {

void check(const std::string& what, const Tensor& got, const Tensor& expected) {
  const bool equal = got.sizes() == expected.sizes() && got.allclose(expected, 1e-9, 1e-12);
  std::cout << what << ": " << (equal ? "equal" : "DIFFERENT") << '\n';
  if (!equal) std::exit(1);
}

torch::nn::Sequential make_net() {
  torch::nn::Sequential net(torch::nn::Linear(3, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1));
  net->to(torch::kDouble);
  return net;
}

void first_gradient() {
  const auto f = [](const Tensor& x) { return (x.sin() * x).sum(); };
  const Tensor x = torch::linspace(0, 1, 4, torch::kDouble);
  const Tensor g = grad(f)(x);                          // the gradient, shaped like x
  const auto [value, gradient] = value_and_grad(f)(x);  // both, in one run
  const Tensor second = grad([&](const Tensor& at) { return grad(f)(at).sum(); })(x);

  const auto distance = [](const Tensor& a, const Tensor& b) { return (a - b).square().sum(); };
  const auto [ga, gb] = grad<0, 1>(distance)(x, g);  // by both arguments
  const Tensor by_last = grad<-1>(distance)(x, g);   // by the last one

  check("gradient", g, x.cos() * x + x.sin());
  check("value and gradient", value + gradient.sum(), f(x) + g.sum());
  check("second derivative", second, 2 * x.cos() - x * x.sin());
  check("two gradients", ga, -gb);
  check("gradient by the last", by_last, gb);
}

void gradient_of_parameters() {
  torch::nn::Sequential net = make_net();
  const auto loss = [&](const TensorDict& params, const Tensor& x, const Tensor& y) {
    return (functional_call(net, params, x) - y).square().mean();
  };
  const Tensor x = torch::randn({5, 3}, torch::kDouble), y = torch::randn({5, 1}, torch::kDouble);
  const TensorDict params = from_module(net);
  const TensorDict g = grad(loss)(params, x, y);  // a tree like params
  const TensorDict stepped = params - 0.1 * g;    // so a step of SGD is arithmetic

  const TensorDict each = vmap(grad(loss), {.in_dims = {std::nullopt, 0, 0}})(params, x, y);

  check("mean of the samples' gradients", each["0.weight"].mean(0), g["0.weight"]);
  loss(params, x, y).backward();
  check("a step", stepped["2.weight"], params["2.weight"] - 0.1 * params["2.weight"].grad());
}

void products() {
  const auto f = [](const Tensor& x) { return x.cumsum(0).sin(); };
  const Tensor x = torch::randn({4}, torch::kDouble), v = torch::randn({4}, torch::kDouble);
  const auto [y, pullback] = vjp(f, x);
  const Tensor row = pullback(v);              // v^T J; call it as often as you like
  const auto [same_y, column] = jvp(f, x, v);  // J v, in one run forward
  const auto [also_y, pushforward] = linearize(f, x);
  const Tensor again = pushforward(v);  // J v, as often as you like

  const auto with_norm = [&](const Tensor& at) { return WithAux{f(at), Tensor(at.norm())}; };
  const auto [z, pull, norm] = vjp(with_norm, x);  // the norm is handed out, not differentiated

  check("v^T J v", row.dot(v), column.dot(v));
  check("linearize", again, column);
  check("results", y + same_y, also_y + z);
  check("auxiliary value", norm, x.norm());
  check("the same pullback", pull(v), row);
}

void jacobians() {
  const auto f = [](const Tensor& x) { return x.cumsum(0).sin(); };
  const Tensor x = torch::randn({4}, torch::kDouble);
  const Tensor by_rows = jacrev(f)(x), by_columns = jacfwd(f)(x);
  const Tensor in_chunks = jacrev(f, {.chunk_size = 2})(x);  // two rows at a time: less memory
  const auto energy = [&](const Tensor& at) { return f(at).square().sum(); };
  const Tensor h = hessian(energy)(x);
  const Tensor hv = hvp(energy, x, x);  // H x without H

  check("Jacobians", by_rows, by_columns);
  check("Jacobian in chunks", in_chunks, by_rows);
  check("Hessian", h, h.t());
  check("product with the Hessian", hv, h.mv(x));
}

void dims() {
  const Tensor a = torch::randn({5, 3}, torch::kDouble), b = torch::randn({3, 7}, torch::kDouble);
  const auto dot = [](const Tensor& x, const Tensor& y) { return x.dot(y); };
  const auto one_row = vmap(dot, {.in_dims = {std::nullopt, 1}});              // x is shared, columns of y
  const Tensor product = vmap(one_row, {.in_dims = {0, std::nullopt}})(a, b);  // [5, 7]
  const Tensor transposed = vmap(one_row, {.in_dims = {0, std::nullopt}, .out_dims = 1})(a, b);
  const Tensor chunked = vmap(one_row, {.in_dims = {0, std::nullopt}, .chunk_size = 2})(a, b);

  check("product", product, a.mm(b));
  check("out_dims", transposed, product.t());
  check("chunks", chunked, product);
}

void ensemble() {
  const std::vector<torch::nn::Sequential> nets = {make_net(), make_net(), make_net()};
  const TensorDict params = stack_module_state(nets).params;  // leaves [3, ...]
  const auto forward = [&](const TensorDict& p, const Tensor& x) { return functional_call(nets[0], p, x).sum(); };
  const Tensor x = torch::randn({3}, torch::kDouble);
  const Tensor outputs = vmap(forward, {.in_dims = {0, std::nullopt}})(params, x);               // [3]
  const Tensor hessians = vmap(hessian<1>(forward), {.in_dims = {0, std::nullopt}})(params, x);  // [3, 3, 3]

  for (std::size_t i = 0; i < nets.size(); ++i) {
    const auto alone = [&](const Tensor& at) { return torch::nn::Sequential(nets[i])->forward(at).sum(); };
    check("Hessian of a member", hessians[static_cast<int64_t>(i)], hessian(alone)(x));
    check("output of a member", outputs[static_cast<int64_t>(i)], alone(x));
  }
}

void layers_with_state() {
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4), torch::nn::Dropout(0.5));
  net->to(torch::kDouble);
  const Tensor batches = torch::randn({6, 5, 3}, torch::kDouble);
  const auto loss = [&](const TensorDict& p, const Tensor& x) { return functional_call(net, p, x).square().sum(); };
  TensorDict each;
  {
    const BatchNormGuard guard(net, BatchNormPolicy::kBatchStatistics);
    each = vmap(grad(loss), {.in_dims = {std::nullopt, 0}, .randomness = Randomness::kDifferent})(
        from_module(net, State::kParameters), batches);
  }  // the layer keeps running statistics again

  check("gradients through BatchNorm", each["0.weight"].sum().isfinite(), torch::tensor(true));
  check("no batch was counted", net->named_buffers()["1.num_batches_tracked"], torch::zeros({}, torch::kDouble));
}

void loops() {
  const auto f = [](const Tensor& x) { return torch::special::log_ndtr(x); };
  const Tensor x = torch::randn({3, 20}, torch::kDouble);
  const FallbackReport report;
  const Tensor y = vmap(f)(x);
  std::cout << report;  // aten::special_log_ndtr: 1 time

  check("a loop", y, f(x));
}

}  // namespace

int main() {
  torch::manual_seed(0);
  first_gradient();
  gradient_of_parameters();
  products();
  jacobians();
  dims();
  ensemble();
  layers_with_state();
  loops();
}
