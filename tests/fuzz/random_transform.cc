#include "tests/fuzz/random_transform.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/hvp.h"
#include "functional/jvp.h"
#include "functional/linearize.h"
#include "functional/stop_gradient.h"
#include "functional/vjp.h"
#include "vmap/fallback.h"
#include "vmap/jacobian.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

/// A transform with the function within: given f and the fuse it returns another function.
struct Wrapper {
  const char* text;  ///< `f` stands for the function within
  int order;         ///< how many derivatives it takes
  Function (*wrap)(Function f, Fuse& fuse);
};

/// Three vectors [3] that depend on one.
Tensor three_of(const Tensor& x) { return at::stack({x, x * 0.5, x.cos()}); }

/// A module with a parameter, which places can throw within.
struct Scale : torch::nn::Module {
  explicit Scale(Function f) : f(std::move(f)) {}
  Tensor forward(const Tensor& x) { return f(x * scale); }
  Function f;
  Tensor scale = register_parameter("scale", torch::ones({3}, torch::kDouble));
};

const std::vector<Wrapper>& wrappers() {
  static const std::vector<Wrapper> all = {
      {"grad(f)", 1,
       [](Function f, Fuse& fuse) -> Function {
         return [f, &fuse](const Tensor& x) {
           const Tensor gradient = grad(f)(x);
           fuse.burn(gradient);
           return gradient.square().sum();
         };
       }},
      {"value_and_grad(f)", 1,
       [](Function f, Fuse& fuse) -> Function {
         return [f, &fuse](const Tensor& x) {
           const auto [value, gradient] = value_and_grad(f)(x);
           fuse.burn(gradient);
           return value * gradient.sum();
         };
       }},
      {"vjp(f)", 1,
       [](Function f, Fuse& fuse) -> Function {
         return [f, &fuse](const Tensor& x) {
           const auto [value, pullback] = vjp(f, x);
           fuse.burn(value);
           return pullback(value.sin()).sum() + pullback(value).square().sum();
         };
       }},
      {"jvp(f)", 1,
       [](Function f, Fuse& fuse) -> Function {
         return [f, &fuse](const Tensor& x) {
           const auto [value, tangent] = jvp(f, x, x.cos());
           fuse.burn(tangent);
           return value.tanh() + tangent;
         };
       }},
      {"linearize(f)", 1,
       [](Function f, Fuse& fuse) -> Function {
         return [f, &fuse](const Tensor& x) {
           const auto [value, pushforward] = linearize(f, x);
           fuse.burn(value);
           return pushforward(x) + pushforward(x.sin());
         };
       }},
      {"hvp(f)", 2,
       [](Function f, Fuse& fuse) -> Function {
         return [f, &fuse](const Tensor& x) {
           const auto product = hvp(f, x, x.sin());
           fuse.burn(product);
           return product.sum();
         };
       }},
      {"jacrev(x * f)", 1,
       [](Function f, Fuse& fuse) -> Function {
         return [f, &fuse](const Tensor& x) {
           const Tensor jacobian = jacrev([&](const Tensor& y) { return y * f(y); }, {.chunk_size = 2})(x);
           fuse.burn(jacobian);
           return jacobian.square().mean();
         };
       }},
      {"jacfwd(x * f)", 1,
       [](Function f, Fuse& fuse) -> Function {
         return [f, &fuse](const Tensor& x) {
           const Tensor jacobian = jacfwd([&](const Tensor& y) { return y * f(y); })(x);
           fuse.burn(jacobian);
           return jacobian.square().mean();
         };
       }},
      {"hessian(f)", 2,
       [](Function f, Fuse& fuse) -> Function {
         return [f, &fuse](const Tensor& x) {
           const Tensor second = hessian(f)(x);
           fuse.burn(second);
           return second.sum();
         };
       }},
      {"vmap(f)", 0,
       [](Function f, Fuse& fuse) -> Function {
         return [f, &fuse](const Tensor& x) {
           const Tensor values = vmap(f)(three_of(x));
           fuse.burn(values);
           return values.sum();
         };
       }},
      {"vmap(f, in_dims=-1, chunk_size=2)", 0,
       [](Function f, Fuse& fuse) -> Function {
         return [f, &fuse](const Tensor& x) {
           const Tensor values = vmap(f, {.in_dims = -1, .chunk_size = 2})(three_of(x).t());
           fuse.burn(values);
           return values.prod();
         };
       }},
      {"vmap(x * f, (0, None), out_dims=1, fallback=error)", 0,
       [](Function f, Fuse& fuse) -> Function {
         return [f, &fuse](const Tensor& x) {
           const auto scaled = [&](const Tensor& y, const Tensor& z) { return z * f(y); };
           const Tensor values = vmap(
               scaled, {.in_dims = {0, std::nullopt}, .out_dims = 1, .fallback = Fallback::kError})(three_of(x), x);
           fuse.burn(values);
           return values.select(1, 1).sum();
         };
       }},
      {"functional_call(f)", 0,
       [](Function f, Fuse& fuse) -> Function {
         return [f, &fuse, module = std::make_shared<Scale>(f)](const Tensor& x) {
           const Tensor value = functional_call(module, TensorDict({{"scale", x.sigmoid()}}), x);
           fuse.burn(value);
           return value * 2;
         };
       }},
      {"f + stop_gradient(f)", 0,
       [](Function f, Fuse& fuse) -> Function {
         return [f, &fuse](const Tensor& x) {
           const Tensor value = f(x);
           fuse.burn(value);
           const torch::NoGradGuard no_grad;
           const Tensor constant = f(stop_gradient(x));
           torch::AutoGradMode with_grad(true);
           return value + constant;
         };
       }},
  };
  return all;
}

Tensor throws(const Tensor&) { throw std::runtime_error("on purpose"); }

/// A function without transforms.
RandomFunction random_body(Random& random, Fuse& fuse) {
  using Operator = std::pair<const char*, Tensor (*)(const Tensor&)>;
  static const std::vector<Operator> operators = {
      {"sin", [](const Tensor& x) { return x.sin(); }},
      {"tanh", [](const Tensor& x) { return x.tanh(); }},
      {"softplus", [](const Tensor& x) { return at::softplus(x); }},
      {"flip", [](const Tensor& x) { return x.flip({0}); }},
      {"x * mean", [](const Tensor& x) { return x * x.mean(); }},
      {"softmax", [](const Tensor& x) { return x.softmax(0); }},
      {"cumsum", [](const Tensor& x) { return x.cumsum(0); }},
      {"x / (1 + x^2)", [](const Tensor& x) { return x / (1 + x.square()); }},
      {"mul_", [](const Tensor& x) { return x.clone().mul_(x); }},
      {"outer", [](const Tensor& x) { return at::outer(x, x).sum(1); }},
  };
  std::vector<Operator> chosen;
  std::string text;
  for (int64_t i = 0; i < 2 + random.below(3); ++i) {
    chosen.push_back(random.pick(operators));
    text += std::string(chosen.back().first) + "; ";
  }
  const auto f = [chosen, &fuse](const Tensor& x) {
    Tensor value = x;
    for (const Operator& next : chosen) {
      fuse.burn(value);
      value = next.second(value);
    }
    if (value.requires_grad()) {
      value.register_hook([&fuse](const Tensor& gradient) { fuse.burn(gradient, /*in_backward=*/true); });
    }
    return value.square().sum();
  };
  return {f, "[" + text + "]"};
}

}  // namespace

void Fuse::burn(const Tensor& x, bool in_backward) {
  if (passed_++ != place_) return;
  switch (way_ % 7) {
    case 0:
      throw std::runtime_error("on purpose");
    case 1:
      if (!in_backward) throw 7;  // NOLINT: what is no std::exception; from a hook, that would end the program
      throw std::runtime_error("on purpose");
    case 2:
      x.reshape({1, -1}).mm(x.reshape({1, -1}).new_zeros({2, 5}));
      break;
    case 3:
      vmap([](const Tensor& y) { return y; }, {.in_dims = 9})(x);
      break;
    case 4:
      grad([](const Tensor& y) { return y.unsqueeze(0).expand({2, -1}); })(x.reshape({-1}));
      break;
    case 5:
      jacfwd(throws)(x.reshape({-1}));
      break;
    default:
      vmap(throws, {.chunk_size = 1})(x.reshape({-1}));
  }
  throw std::logic_error("what should have thrown did not");
}

RandomFunction random_function(Random& random, Fuse& fuse, int depth) {
  RandomFunction result = random_body(random, fuse);
  int order = 0;
  for (int i = 0; i < depth; ++i) {
    const Wrapper& wrapper = random.pick(wrappers());
    if (order + wrapper.order > 3) continue;
    order += wrapper.order;
    result.f = wrapper.wrap(result.f, fuse);
    result.text = std::string(wrapper.text) + " of " + result.text;
  }
  return result;
}

}  // namespace graft::testing
