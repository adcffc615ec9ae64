#include "tests/functional/rules/set_ups.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "functional/grad.h"
#include "functional/jvp.h"
#include "functional/vjp.h"
#include "vmap/fallback.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

constexpr int64_t kSamples = 3;

std::string names_of(const FallbackReport& loops) {
  std::string list;
  for (const auto& [name, count] : loops.operators()) list += (list.empty() ? "" : ", ") + name;
  return list;
}

Tensors slice(const Tensors& list, std::size_t begin, std::size_t end) {
  return {list.begin() + static_cast<std::ptrdiff_t>(begin), list.begin() + static_cast<std::ptrdiff_t>(end)};
}

Tensors joined(Tensors left, const Tensors& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

/// One case with its inputs: of all samples, stacked, and the weights that make a number of a result.
class Runner {
 public:
  explicit Runner(const OperatorCase& test) : test_(test) {
    at::manual_seed(0);
    at::set_num_threads(1);  // inputs are tiny: threads would only wait for each other
    for (int64_t i = 0; i < kSamples; ++i) samples_.push_back(test.make());
    for (std::size_t k = 0; k < samples_[0].size(); ++k) {
      Tensors of_all;
      for (const Tensors& sample : samples_) of_all.push_back(sample[k]);
      stacked_.push_back(at::stack(of_all));
    }
    weights_ = at::randn_like(f_of(samples_[0]));
    for (int64_t i = 0; i < kSamples; ++i) cotangents_.push_back(at::randn_like(weights_));
    for (int64_t i = 0; i < kSamples; ++i) {
      directions_.emplace_back();
      for (std::size_t k = 0; k < test_.differentiable; ++k) {
        directions_.back().push_back(at::randn_like(samples_[0][k]));
      }
    }
    for (std::size_t k = 0; k < test_.differentiable; ++k) {
      stacked_directions_.push_back(at::stack({directions_[0][k], directions_[1][k], directions_[2][k]}));
    }
  }

  /// The outcome of one set-up.
  std::string outcome(const std::string& name) {
    Tensors expected;
    try {
      expected = by_loop(name);
    } catch (const std::exception&) {
      return "n/d";
    }
    const FallbackReport loops;
    Tensors got;
    try {
      got = by_transform(name);
    } catch (const c10::Error& error) {
      return std::string("throws: ") + error.what_without_backtrace();
    } catch (const std::exception& error) {
      return std::string("throws: ") + error.what();
    }
    const std::string difference = compare(got, expected);
    if (!difference.empty()) return difference;
    return loops.operators().empty() ? "ok" : "loop: " + names_of(loops);
  }

 private:
  Tensor f_of(const Tensors& in) const { return test_.f(in); }
  Tensor loss_of(const Tensors& in) const { return (f_of(in) * weights_).sum(); }
  Tensors diff_of(const Tensors& in) const { return slice(in, 0, test_.differentiable); }
  Tensors rest_of(const Tensors& in) const { return slice(in, test_.differentiable, in.size()); }

  // --- By ordinary autograd

  /// The gradient, on the tape if it is to be differentiated again.
  Tensors gradient(const Tensors& leaves, const Tensors& rest, bool create_graph) const {
    const Tensor loss = loss_of(joined(leaves, rest));
    return defined(torch::autograd::grad({loss}, leaves, {}, /*retain_graph=*/true, create_graph, true), leaves);
  }

  static Tensors defined(Tensors gradients, const Tensors& like) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) gradients[i] = at::zeros_like(like[i]);
    }
    return gradients;
  }

  Tensors leaves_of(const Tensors& in) const {
    Tensors leaves;
    for (const Tensor& tensor : diff_of(in)) leaves.push_back(tensor.detach().clone().set_requires_grad(true));
    return leaves;
  }

  /// J v, one row of J at a time.
  Tensors along(const Tensors& in, const Tensors& direction) const {
    const Tensors leaves = leaves_of(in);
    const Tensor y = f_of(joined(leaves, rest_of(in)));
    Tensors elements;
    for (int64_t i = 0; i < y.numel(); ++i) {
      const Tensor element = y.reshape({-1})[i];
      Tensor sum = at::zeros({}, y.options());
      if (element.requires_grad()) {
        const Tensors row = defined(torch::autograd::grad({element}, leaves, {}, true, false, true), leaves);
        for (std::size_t k = 0; k < row.size(); ++k) sum = sum + (row[k] * direction[k]).sum();
      }
      elements.push_back(sum);
    }
    return {at::stack(elements).reshape(y.sizes())};
  }

  /// H v, by differentiating twice.
  Tensors hessian_along(const Tensors& in, const Tensors& direction) const {
    const Tensors leaves = leaves_of(in);
    const Tensors first = gradient(leaves, rest_of(in), /*create_graph=*/true);
    Tensor sum = at::zeros({}, first[0].options());
    for (std::size_t k = 0; k < first.size(); ++k) sum = sum + (first[k] * direction[k]).sum();
    if (!sum.requires_grad()) return defined(Tensors(leaves.size()), leaves);
    return defined(torch::autograd::grad({sum}, leaves, {}, true, false, true), leaves);
  }

  Tensors by_loop(const std::string& name) const {
    const auto each = [&](const std::function<Tensors(int64_t)>& of_sample) {
      std::vector<Tensors> all;
      for (int64_t i = 0; i < kSamples; ++i) all.push_back(of_sample(i));
      Tensors stacked;
      for (std::size_t k = 0; k < all[0].size(); ++k) stacked.push_back(at::stack({all[0][k], all[1][k], all[2][k]}));
      return stacked;
    };
    const Tensors& one = samples_[0];
    if (name == "b" || name == "b1" || name == "b2") {
      return each([&](int64_t i) -> Tensors {
        Tensors in = samples_[i];
        for (std::size_t k = 0; k < in.size(); ++k) in[k] = is_mapped(name, k) ? in[k] : one[k];
        return {f_of(in).detach()};
      });
    }
    if (name == "c") {
      return each([&](int64_t i) { return gradient(leaves_of(samples_[i]), rest_of(samples_[i]), false); });
    }
    if (name == "r") {
      const Tensors leaves = leaves_of(one);
      const Tensor y = f_of(joined(leaves, rest_of(one)));
      return each([&](int64_t i) {
        return defined(torch::autograd::grad({y}, leaves, {cotangents_[i]}, true, false, true), leaves);
      });
    }
    if (name == "d") return along(one, directions_[0]);
    if (name == "e1") return each([&](int64_t i) { return along(one, directions_[i]); });
    if (name == "e2") return each([&](int64_t i) { return along(samples_[i], directions_[0]); });
    if (name == "h1" || name == "h2" || name == "h4") return hessian_along(one, directions_[0]);
    if (name == "h3") return each([&](int64_t i) { return hessian_along(one, directions_[i]); });
    throw std::invalid_argument("no set-up " + name);
  }

  // --- By transforms

  static bool is_mapped(const std::string& name, std::size_t input) {
    return name == "b" || (name == "b1") == (input == 0);
  }

  Tensors mapped(const std::string& name) const {
    Tensors in, fixed;
    for (std::size_t k = 0; k < stacked_.size(); ++k) {
      (is_mapped(name, k) ? in : fixed).push_back(is_mapped(name, k) ? stacked_[k] : samples_[0][k]);
    }
    const auto f = [&](const Tensors& moving, const Tensors& still) {
      auto next = moving.begin();
      auto next_still = still.begin();
      Tensors all;
      for (std::size_t k = 0; k < stacked_.size(); ++k) all.push_back(is_mapped(name, k) ? *next++ : *next_still++);
      return f_of(all);
    };
    return {vmap(f, {.in_dims = {0, std::nullopt}})(in, fixed)};
  }

  Tensors by_transform(const std::string& name) const {
    const Tensors one = diff_of(samples_[0]), rest = rest_of(samples_[0]);
    const auto loss = [&](const Tensors& diff, const Tensors& others) { return loss_of(joined(diff, others)); };
    const auto tangent = [&](const Tensors& diff, const Tensors& others, const Tensors& direction) {
      const auto f = [&](const Tensors& moving) { return f_of(joined(moving, others)); };
      return Tensors{jvp(f, diff, direction).second};
    };
    const auto hessian = [&](const Tensors& direction) {
      const auto first = [&](const Tensors& diff) { return grad(loss)(diff, rest); };
      return jvp(first, one, direction).second;
    };
    if (name == "b" || name == "b1" || name == "b2") return mapped(name);
    if (name == "c") {
      if (rest.empty())
        return vmap([&](const Tensors& diff) { return grad(loss)(diff, Tensors()); })(diff_of(stacked_));
      return vmap(grad(loss))(diff_of(stacked_), rest_of(stacked_));
    }
    if (name == "r") {
      const auto pullback = vjp([&](const Tensors& diff) { return f_of(joined(diff, rest)); }, one).second;
      return vmap([&](const Tensor& cotangent) { return pullback(cotangent); })(at::stack(cotangents_));
    }
    if (name == "d") return tangent(one, rest, directions_[0]);
    if (name == "e1") {
      return vmap([&](const Tensors& direction) { return tangent(one, rest, direction); })(stacked_directions_);
    }
    if (name == "e2") {
      const auto f = [&](const Tensors& in) { return tangent(diff_of(in), rest_of(in), directions_[0]); };
      return vmap(f)(stacked_);
    }
    if (name == "h1") return hessian(directions_[0]);
    if (name == "h3") return vmap(hessian)(stacked_directions_);
    if (name == "h4") {
      const auto along = [&](const Tensors& diff) { return (tangent(diff, rest, directions_[0])[0] * weights_).sum(); };
      return grad(along)(one);
    }
    const auto slope = [&](const Tensors& diff) {
      const Tensors first = grad(loss)(diff, rest);
      Tensor sum = (first[0] * directions_[0][0]).sum();
      for (std::size_t k = 1; k < first.size(); ++k) sum = sum + (first[k] * directions_[0][k]).sum();
      return sum;
    };
    return grad(slope)(one);
  }

  std::string compare(const Tensors& got, const Tensors& expected) const {
    for (std::size_t k = 0; k < expected.size(); ++k) {
      if (got[k].sizes() != expected[k].sizes()) {
        return c10::str("wrong: shape ", got[k].sizes(), ", expected ", expected[k].sizes());
      }
      if (got[k].scalar_type() != expected[k].scalar_type()) {
        return c10::str("wrong: ", got[k].scalar_type(), ", expected ", expected[k].scalar_type());
      }
      if (expected[k].numel() == 0) continue;
      const double size = std::max(1.0, expected[k].abs().max().item<double>());
      const double difference = (got[k] - expected[k]).abs().max().item<double>();
      if (!(difference <= test_.tolerance * size)) return c10::str("wrong by ", difference);
    }
    return "";
  }

  const OperatorCase& test_;
  std::vector<Tensors> samples_, directions_;
  Tensors stacked_, stacked_directions_, cotangents_;
  Tensor weights_;
};

std::vector<std::string> set_ups_of(const OperatorCase& test, std::size_t inputs) {
  std::vector<std::string> names = {"b"};
  if (inputs > 1) names.insert(names.end(), {"b1", "b2"});
  if (test.differentiable > 0) names.insert(names.end(), {"c", "r", "d", "e1", "e2", "h1", "h2", "h3", "h4"});
  return names;
}

}  // namespace

Outcomes run_set_ups(const OperatorCase& test, const std::vector<std::string>& of) {
  Runner runner(test);
  Outcomes outcomes;
  for (const std::string& name : of.empty() ? set_ups_of(test, test.make().size()) : of) {
    outcomes[name] = runner.outcome(name);
  }
  return outcomes;
}

void check_set_ups(const OperatorCase& test, const Outcomes& exceptions) {
  for (const auto& [name, outcome] : run_set_ups(test)) {
    const auto exception = exceptions.find(name);
    if (exception != exceptions.end()) {
      EXPECT_TRUE(outcome.starts_with(exception->second)) << test.name << ", " << name << ": " << outcome;
    } else {
      EXPECT_TRUE(outcome == "ok" || outcome == "n/d") << test.name << ", " << name << ": " << outcome;
    }
  }
}

Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

}  // namespace graft::testing
