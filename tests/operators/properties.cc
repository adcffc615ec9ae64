#include "tests/operators/properties.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "functional/grad.h"
#include "tests/operators/by_graft.h"
#include "tests/operators/reference.h"
#include "tests/operators/rule_observer.h"
#include "tests/operators/subject.h"
#include "tests/operators/tensor_lists.h"
#include "vmap/fallback.h"
#include "vmap/jacobian.h"

namespace graft::testing {
namespace {

/// Compares what Graft gives with what it must be, set-up by set-up.
class Checker {
 public:
  explicit Checker(const Operator& op) : subject_(op) {}

  Row run() {
    check_maps();
    if (subject_.has_derivatives()) {
      check_gradients();
      check_tangents();
      check_jacobians();
      check_second_derivatives();
    }
    return std::move(row_);
  }

 private:
  using Give = std::function<Tensor()>;
  struct Expected {
    Give value;
    Give by_differences = {};  ///< if autograd has no derivative
    double tolerance = 1e-9;   ///< of the value, relative to the largest element
  };
  static constexpr double kToleranceOfDifferences = 1e-6;

  void check_maps() {
    const auto call = [&](const TensorDict& params, const Tensors& inputs, const TensorDict& buffers) {
      return by_graft_.call(params, inputs, buffers);
    };
    const auto check = [&](const std::string& set_up, const std::function<bool(std::size_t)>& is_mapped) {
      compare("vmap", set_up, [&] { return by_graft_.map_samples(call, is_mapped); },
              {[&] { return stack([&](std::size_t i) { return mixed_output(is_mapped, i); }); }});
    };
    check("over all inputs", [](std::size_t) { return true; });
    if (subject_.samples()[0].size() > 1) {
      check("over the first input", [](std::size_t k) { return k == 0; });
      check("over all inputs but the first", [](std::size_t k) { return k > 0; });
    }
    if (subject_.has_parameters()) {
      compare("vmap of parameters", "", [&] { return by_graft_.map_modules(call); },
              {[&] { return stack([&](std::size_t m) { return reference_.output(m, 0); }); }});
    }
  }

  void check_gradients() {
    const auto gradients = [&](const TensorDict& params, const Tensors& inputs, const TensorDict& buffers) {
      return by_graft_.gradients_of(params, inputs, buffers);
    };
    compare("vmap(grad)", "", [&] { return rows_of(by_graft_.map_samples(gradients, all)); },
            {[&] { return stack([&](std::size_t i) { return reference_.gradient(0, i); }); },
             [&] { return stack([&](std::size_t i) { return reference_.gradient_by_differences(0, i); }); }});
    if (subject_.has_parameters()) {
      compare("vmap(grad) of parameters", "", [&] { return rows_of(by_graft_.map_modules(gradients)); },
              {[&] { return stack([&](std::size_t m) { return reference_.gradient(m, 0); }); },
               [&] { return stack([&](std::size_t m) { return reference_.gradient_by_differences(m, 0); }); }});
    }
  }

  void check_tangents() {
    const Variables direction = subject_.variables_like(subject_.direction(0));
    const auto push = [&](const TensorDict& params, const Tensors& inputs, const TensorDict& buffers) {
      return by_graft_.push(params, inputs, buffers, direction);
    };
    const Give tangent = by_graft_.of_first(push);
    compare(
        "jvp", "", [&] { return tangent().unsqueeze(0); },
        along([](std::size_t) { return std::pair(std::size_t{0}, std::size_t{0}); }, 1));
    if (!subject_.op().holds_a_part_fixed) {
      compare(
          "jvp", "as a difference", tangent,
          {[&] { return reference_.difference_of_outputs(0, subject_.direction(0)); }, {}, kToleranceOfDifferences});
    }
    const auto push_each = [&](const Tensors& list) {
      return by_graft_.of_first([&](const TensorDict& params, const Tensors& inputs, const TensorDict& buffers) {
        return by_graft_.push(params, inputs, buffers, subject_.variables_like(list));
      })();
    };
    compare(
        "vmap(jvp)", "over directions", [&] { return by_graft_.map_directions(push_each); },
        along([](std::size_t i) { return std::pair(std::size_t{0}, i); }, kSamples));
    compare(
        "vmap(jvp)", "over inputs, with one direction", [&] { return by_graft_.map_samples(push, all); },
        along([](std::size_t i) { return std::pair(i, std::size_t{0}); }, kSamples));
  }

  /// Derivatives of outputs: J v for each pair of a sample and a direction.
  Expected along(const std::function<std::pair<std::size_t, std::size_t>(std::size_t)>& pair_at,
                 std::size_t count) const {
    const auto each = [=, this](const std::function<Tensor(std::size_t, const Tensors&)>& derivative_at) {
      return [=, this] {
        Tensors rows;
        for (std::size_t i = 0; i < count; ++i) {
          const auto [sample, direction] = pair_at(i);
          rows.push_back(derivative_at(sample, subject_.direction(direction)).reshape(subject_.output_sizes()));
        }
        return torch::stack(rows);
      };
    };
    return derivative(
        {each([this](std::size_t i, const Tensors& v) { return jacobian(i).mv(flat(v)); }),
         each([this](std::size_t i, const Tensors& v) { return reference_.difference_of_outputs(i, v); })});
  }

  void check_jacobians() {
    const auto call = by_graft_.of_list([&](const Variables& variables, const Tensors& of, const TensorDict& buffers) {
      return by_graft_.call(variables, of, buffers);
    });
    const Tensors at = subject_.values(0, 0);
    const JacobianOptions options = {.randomness = by_graft_.randomness()};
    const Expected expected = {[&] { return jacobian(0); }, [&] { return reference_.jacobian_by_differences(0); }};
    compare(
        "jacrev", "", [&] { return as_matrix(jacrev(call, options)(at), at); }, expected);
    compare(
        "jacfwd", "", [&] { return as_matrix(jacfwd(call, options)(at), at); }, derivative(expected));
  }

  void check_second_derivatives() {
    const auto loss = by_graft_.of_list([&](const Variables& variables, const Tensors& of, const TensorDict& buffers) {
      return by_graft_.loss(variables, of, buffers);
    });
    const Tensors at = subject_.values(0, 0), direction = subject_.direction(0);
    const auto slope = [&](const Tensors& list) { return dot(grad(loss)(list), direction); };
    compare("grad(grad)", "", [&] { return flat(grad(slope)(at)); },
            {[&] { return second_derivative().mv(flat(direction)); },
             [&] { return reference_.difference_of_gradients(direction); }});
    Tensor found;
    const JacobianOptions options = {.randomness = by_graft_.randomness()};
    compare("hessian", "",
            [&] {
              Tensors rows;
              const std::vector<Tensors> blocks = hessian(loss, options)(at);
              for (std::size_t k = 0; k < at.size(); ++k) rows.push_back(as_matrix(blocks[k], at));
              return found = torch::cat(rows);
            },
            {[&] { return second_derivative(); }, [&] { return reference_.second_derivative_by_differences(); }});
    if (!found.defined()) return;
    compare("hessian", "symmetric", [&] { return found; }, {[&] { return found.t(); }});
    compare("hessian", "as a difference", [&] { return found.mv(flat(direction)); },
            {[&] { return reference_.difference_of_gradients(direction); }, {}, kToleranceOfDifferences});
  }

  /// The same, but by differences alone if the operator's backward is not its derivative.
  Expected derivative(Expected expected) const {
    return subject_.op().has_other_backward ? Expected{expected.by_differences, {}, kToleranceOfDifferences} : expected;
  }

  void compare(const std::string& transform, const std::string& set_up, const Give& by_graft, const Expected& by) {
    Cell cell;
    Tensor got;
    {
      const FallbackReport loops;
      const RuleObserver observer(row_.rules);
      try {
        got = by_graft();
      } catch (const c10::Error& error) {
        cell = {Mark::kRefused, error.what_without_backtrace()};
      } catch (const std::exception& error) {
        cell = {Mark::kRefused, error.what()};
      }
      for (const auto& [name, count] : loops.operators()) {
        row_.loops.insert(name);
        if (got.defined()) cell = {Mark::kLoop, name};
      }
    }
    if (!got.defined() && !gives(by.value)) cell = {Mark::kNoDerivative, ""};
    if (got.defined()) {
      const std::string difference = difference_from(got, by);
      if (!difference.empty()) cell = {Mark::kWrong, difference};
    }
    if (!set_up.empty() && !cell.detail.empty()) cell.detail = set_up + ": " + cell.detail;
    const auto [place, is_new] = row_.cells.emplace(transform, cell);
    if (!is_new && cell.mark > place->second.mark) place->second = cell;
  }

  static std::optional<Tensor> gives(const Give& give) {
    try {
      return give();
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }

  /// Says how far `got` is from what it must be; nothing if it is near enough.
  static std::string difference_from(const Tensor& got, const Expected& by) {
    if (const auto value = gives(by.value)) return difference_between(got, *value, by.tolerance);
    if (!by.by_differences) return "nothing to compare with";
    const auto value = gives(by.by_differences);
    return value ? difference_between(got, *value, kToleranceOfDifferences) : "nothing to compare with";
  }

  static std::string difference_between(const Tensor& got, const Tensor& expected, double tolerance) {
    if (got.sizes() != expected.sizes()) return c10::str("shape ", got.sizes(), ", expected ", expected.sizes());
    if (got.scalar_type() != expected.scalar_type()) {
      return c10::str(got.scalar_type(), ", expected ", expected.scalar_type());
    }
    const Tensor error = (got - expected).abs();
    if (error.numel() == 0) return "";
    const double size = std::max(1.0, expected.abs().max().item<double>());
    const double largest = error.max().item<double>();
    return largest <= tolerance * size ? "" : c10::str("wrong by ", largest);
  }

  static bool all(std::size_t) { return true; }

  static Tensor stack(const std::function<Tensor(std::size_t)>& each) {
    return torch::stack({each(0), each(1), each(2)});
  }

  static Tensor rows_of(const Variables& stacked) {
    Tensors parts;
    for (const Tensor& part : values_of(stacked)) parts.push_back(part.reshape({part.size(0), -1}));
    return torch::cat(parts, 1);
  }

  static Tensor as_matrix(const Tensors& blocks, const Tensors& variables) {
    Tensors columns;
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      columns.push_back(blocks[k].reshape({-1, variables[k].numel()}));
    }
    return torch::cat(columns, 1);
  }

  Tensor mixed_output(const std::function<bool(std::size_t)>& is_mapped, std::size_t i) const {
    Tensors inputs = subject_.samples()[0];
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      if (is_mapped(k)) inputs[k] = subject_.samples()[i][k];
    }
    return reference_.output(0, inputs);
  }

  const Tensor& jacobian(std::size_t i) const {
    if (!jacobians_[i].defined()) jacobians_[i] = reference_.jacobian(i);
    return jacobians_[i];
  }
  const Tensor& second_derivative() const {
    if (!second_derivative_.defined()) second_derivative_ = reference_.second_derivative();
    return second_derivative_;
  }

  const Subject subject_;
  const Reference reference_{subject_};
  const ByGraft by_graft_{subject_};
  Row row_;
  mutable Tensor jacobians_[kSamples], second_derivative_;
};

}  // namespace

const std::vector<std::string>& transforms() {
  static const std::vector<std::string> names = {
      "vmap",   "vmap of parameters", "vmap(grad)", "vmap(grad) of parameters", "jvp", "vmap(jvp)", "jacrev",
      "jacfwd", "grad(grad)",         "hessian"};
  return names;
}

Row run_transforms(const Operator& op) { return Checker(op).run(); }

}  // namespace graft::testing
