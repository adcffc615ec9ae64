#include "tests/operators/properties.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/jvp.h"
#include "functional/module_state.h"
#include "functional/tree.h"
#include "tensordict/tensordict.h"
#include "vmap/fallback.h"
#include "vmap/jacobian.h"
#include "vmap/stacked_state.h"
#include "vmap/vmap.h"

namespace graft::testing {

/// What an operator is differentiated by: of a function, inputs alone.
struct Variables {
  TensorDict params;
  Tensors inputs;
};

}  // namespace graft::testing

GRAFT_TREE(graft::testing::Variables, params, inputs)

namespace graft::testing {
namespace {

constexpr std::size_t kSamples = 3;  // and as many modules
constexpr uint64_t kSeed = 7;        // of what random operators draw
constexpr double kStep = 1e-5;       // of finite differences

// --- Lists of tensors, and matrices [elements of the result, elements of the variables]

Tensors concatenated(Tensors left, const Tensors& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Tensors values_of(const Variables& variables) { return concatenated(variables.params.values(), variables.inputs); }

Tensor flat(const Tensors& tensors) {
  Tensors rows;
  for (const Tensor& tensor : tensors) rows.push_back(tensor.reshape({-1}));
  return torch::cat(rows);
}

/// The inverse of flat.
Tensors like(const Tensors& shapes, const Tensor& elements) {
  Tensors tensors;
  int64_t begin = 0;
  for (const Tensor& shape : shapes) {
    tensors.push_back(elements.narrow(0, begin, shape.numel()).reshape(shape.sizes()));
    begin += shape.numel();
  }
  return tensors;
}

Tensors moved(const Tensors& values, const Tensors& direction, double step) {
  Tensors result;
  for (std::size_t k = 0; k < values.size(); ++k) result.push_back(values[k] + step * direction[k]);
  return result;
}

Tensor dot(const Tensors& left, const Tensors& right) {
  Tensor sum = (left[0] * right[0]).sum();
  for (std::size_t k = 1; k < left.size(); ++k) sum = sum + (left[k] * right[k]).sum();
  return sum;
}

Tensors randn_like(const Tensors& shapes) {
  Tensors drawn;
  for (const Tensor& shape : shapes) drawn.push_back(torch::randn_like(shape));
  return drawn;
}

/// The central difference of f along a direction, or along each element of its argument, as columns.
Tensor difference(const std::function<Tensor(const Tensors&)>& f, const Tensors& at, const Tensors& direction) {
  return (f(moved(at, direction, kStep)) - f(moved(at, direction, -kStep))) / (2 * kStep);
}
Tensor differences(const std::function<Tensor(const Tensors&)>& f, const Tensors& at) {
  const Tensor directions = torch::eye(flat(at).numel(), torch::kDouble);
  Tensors columns;
  for (int64_t i = 0; i < directions.size(0); ++i) {
    columns.push_back(difference(f, at, like(at, directions[i])).reshape({-1}));
  }
  return torch::stack(columns, 1);
}

/// Says whether Graft has a kernel for an operator: the dispatcher knows the file that each kernel is from.
bool has_rule(const c10::OperatorHandle& op) {
  static std::map<std::string, bool> known;
  const auto [place, is_new] = known.emplace(c10::toString(op.operator_name()), false);
  if (is_new) place->second = op.dumpState().find("functional/rules/") != std::string::npos;
  return place->second;
}

/// Notes on this thread which operators run that have a rule.
class RuleObserver {
 public:
  explicit RuleObserver(std::set<std::string>& rules)
      : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&note).scopes({at::RecordScope::FUNCTION}))) {
    noted_ = &rules;
  }
  ~RuleObserver() { at::removeCallback(handle_); }
  RuleObserver(const RuleObserver&) = delete;
  RuleObserver& operator=(const RuleObserver&) = delete;

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& call) {
    const auto name = call.operator_name();
    const auto op = name ? c10::Dispatcher::singleton().findOp(*name) : std::nullopt;
    if (op && has_rule(*op)) {
      noted_->insert(name->name.substr(name->name.rfind(':') + 1));
    }
    return nullptr;
  }

  static thread_local std::set<std::string>* noted_;
  const at::CallbackHandle handle_;
};

thread_local std::set<std::string>* RuleObserver::noted_ = nullptr;

/// A module with one forward for all.
struct Net : torch::nn::Module {
  explicit Net(const Operator& op) : op_(op), body_(register_module("body", op.make())) {
    to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    for (Tensor& parameter : parameters()) parameter.normal_();
    for (Tensor& buffer : buffers()) {
      if (buffer.is_floating_point()) buffer.uniform_(0.5, 1.5);
    }
  }
  Tensor forward(const Tensors& inputs) { return op_.forward(*body_, inputs); }

 private:
  const Operator& op_;
  std::shared_ptr<torch::nn::Module> body_;
};

Tensors copies(const Tensors& tensors) {
  Tensors copied;
  for (const Tensor& tensor : tensors) copied.push_back(tensor.detach().clone());
  return copied;
}

/// One operator with its modules and the inputs of all samples.
class Subject {
 public:
  explicit Subject(const Operator& op) : op_(op) {
    torch::manual_seed(0);
    at::set_num_threads(1);  // inputs are tiny: threads would only wait for each other
    for (std::size_t i = 0; i < kSamples; ++i) samples_.push_back(op.inputs());
    for (; differentiable_ < std::min(op.differentiable, samples_[0].size()); ++differentiable_) {
      if (!samples_[0][differentiable_].is_floating_point()) break;
    }
    for (std::size_t m = 0; op.is_module() && m < kSamples; ++m) {
      nets_.push_back(std::make_shared<Net>(op));
      states_.push_back({copies(nets_[m]->parameters()), copies(nets_[m]->buffers())});
    }
    if (op.is_module()) {
      const auto copy = [](const Tensor& tensor) { return tensor.detach().clone(); };
      params_ = from_module(*nets_[0], State::kParameters).map(copy);
      buffers_ = from_module(*nets_[0], State::kBuffers).map(copy);
    }
    const Tensor y = plain(values(0, 0), 0, samples_[0]);
    is_floating_ = y.is_floating_point();
    output_sizes_ = y.sizes().vec();
    if (is_floating_) weights_ = torch::randn_like(y);
    for (std::size_t i = 0; i < kSamples; ++i) directions_.push_back(randn_like(values(0, 0)));
  }

  bool has_parameters() const { return !params_.values().empty(); }
  bool has_derivatives() const { return is_floating_ && !values(0, 0).empty(); }

  // --- By ordinary autograd: module m on sample i

  Tensors values(std::size_t m, std::size_t i) const { return values(m, samples_[i]); }

  Tensor output(std::size_t m, std::size_t i) const { return output(m, samples_[i]); }
  Tensor output(std::size_t m, const Tensors& inputs) const { return plain(values(m, inputs), m, inputs).detach(); }

  /// The gradient of a number made of the output.
  Tensor gradient(std::size_t m, std::size_t i) const { return gradient(values(m, i), m, i); }

  /// The derivatives of the output's elements.
  Tensor jacobian(std::size_t i) const {
    Tensors leaves;
    return rows(plain(values(0, i), 0, samples_[i], &leaves), leaves);
  }

  /// The derivatives of the gradient's elements.
  Tensor second_derivative() const {
    Tensors leaves;
    const Tensor first = gradient(values(0, 0), 0, 0, &leaves);
    return rows(first, leaves);
  }

  // --- By finite differences

  Tensor gradient_by_differences(std::size_t m, std::size_t i) const {
    const auto loss_at = [&](const Tensors& at) { return (plain(at, m, samples_[i]) * weights_).sum().detach(); };
    return differences(loss_at, values(m, i)).reshape({-1});
  }
  Tensor difference_of_outputs(std::size_t i, const Tensors& along) const {
    return difference([&](const Tensors& at) { return plain(at, 0, samples_[i]).detach(); }, values(0, i), along);
  }
  Tensor jacobian_by_differences(std::size_t i) const {
    return differences([&](const Tensors& at) { return plain(at, 0, samples_[i]).detach(); }, values(0, i));
  }
  Tensor difference_of_gradients(const Tensors& along) const {
    return difference([&](const Tensors& at) { return gradient(at, 0, 0); }, values(0, 0), along);
  }
  Tensor second_derivative_by_differences() const {
    return differences([&](const Tensors& at) { return gradient(at, 0, 0); }, values(0, 0));
  }

  // --- By Graft

  /// The operator as a function.
  Tensor call(const TensorDict& params, const Tensors& inputs, const TensorDict& buffers) const {
    if (op_.is_random) torch::manual_seed(kSeed);
    return op_.is_module() ? functional_call(*nets_[0], {params, buffers}, inputs) : op_.function(inputs);
  }

  /// Of what is differentiated by. \param of gives the inputs that are not
  Tensor call(const Variables& variables, const Tensors& of, const TensorDict& buffers) const {
    const Tensors rest(of.begin() + static_cast<std::ptrdiff_t>(differentiable_), of.end());
    return call(variables.params, concatenated(variables.inputs, rest), buffers);
  }

  Tensor loss(const Variables& variables, const Tensors& of, const TensorDict& buffers) const {
    return (call(variables, of, buffers) * weights_).sum();
  }

  Variables gradients_of(const TensorDict& params, const Tensors& inputs, const TensorDict& buffers) const {
    const auto f = [&](const Variables& variables) { return loss(variables, inputs, buffers); };
    return grad(f)(Variables{params, differentiable(inputs)});
  }

  /// The derivative along a direction.
  Tensor push(const TensorDict& params, const Tensors& inputs, const TensorDict& buffers,
              const Variables& along) const {
    const auto f = [&](const Variables& variables) { return call(variables, inputs, buffers); };
    return jvp(f, Variables{params, differentiable(inputs)}, along).second;
  }

  /// Maps f(params, inputs, buffers) over samples of the inputs for which is_mapped(position), or over modules.
  template <class F>
  auto map_samples(const F& f, const std::function<bool(std::size_t)>& is_mapped) const {
    Tensors inputs;
    std::vector<MappedDims> dims;
    for (std::size_t k = 0; k < samples_[0].size(); ++k) {
      Tensors of_all;
      for (const Tensors& sample : samples_) of_all.push_back(sample[k]);
      inputs.push_back(is_mapped(k) ? torch::stack(of_all) : samples_[0][k]);
      dims.push_back(is_mapped(k) ? MappedDims(0) : MappedDims(std::nullopt));
    }
    return vmap(f, options({std::nullopt, MappedDims(dims), std::nullopt}))(params_, inputs, fresh_buffers());
  }
  template <class F>
  auto map_modules(const F& f) const {
    restore();
    const auto [params, buffers] = stack_module_state(nets_);
    const MappedDims of_buffers = buffers.values().empty() ? MappedDims(std::nullopt) : MappedDims(0);
    return vmap(f, options({0, std::nullopt, of_buffers}))(params, samples_[0], buffers);
  }
  template <class F>
  auto map_directions(const F& f) const {
    Tensors columns;
    for (std::size_t k = 0; k < directions_[0].size(); ++k) {
      columns.push_back(torch::stack({directions_[0][k], directions_[1][k], directions_[2][k]}));
    }
    return vmap(f, options(0))(columns);
  }

  /// f of the first module's state and the first sample.
  template <class F>
  auto of_first(const F& f) const {
    return [this, f] { return f(params_, samples_[0], fresh_buffers()); };
  }

  /// A function of a list of tensors in place of the first module's parameters and the first sample.
  template <class F>
  auto of_list(const F& f) const {
    return [this, f, buffers = fresh_buffers()](const Tensors& list) {
      return f(variables_like(list), samples_[0], buffers);
    };
  }

  Variables variables_like(const Tensors& list) const {
    auto next = list.begin();
    const TensorDict params = params_.map([&](const Tensor&) { return *next++; });
    return {params, Tensors(next, list.end())};
  }

  Tensors differentiable(const Tensors& inputs) const {
    return {inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(differentiable_)};
  }

  const Operator& op() const { return op_; }
  const std::vector<int64_t>& output_sizes() const { return output_sizes_; }
  const std::vector<Tensors>& samples() const { return samples_; }
  const Tensors& direction(std::size_t i) const { return directions_[i]; }
  Randomness randomness() const { return op_.is_random ? Randomness::kSame : Randomness::kError; }

 private:
  struct NetState {
    Tensors parameters, buffers;
  };

  /// Gives modules their state back, which some change in a call.
  void restore() const {
    const torch::NoGradGuard no_grad;
    for (std::size_t m = 0; m < nets_.size(); ++m) {
      const auto copy_to = [](const Tensors& to, const Tensors& from) {
        for (std::size_t k = 0; k < to.size(); ++k) to[k].copy_(from[k]);
      };
      copy_to(nets_[m]->parameters(), states_[m].parameters);
      copy_to(nets_[m]->buffers(), states_[m].buffers);
    }
  }

  Tensors values(std::size_t m, const Tensors& inputs) const {
    return op_.is_module() ? concatenated(states_[m].parameters, differentiable(inputs)) : differentiable(inputs);
  }

  /// Recorded for another derivative if `leaves` are wanted.
  Tensor gradient(const Tensors& at, std::size_t m, std::size_t i, Tensors* leaves = nullptr) const {
    Tensors own;
    Tensors& of = leaves != nullptr ? *leaves : own;
    const Tensor loss = (plain(at, m, samples_[i], &of) * weights_).sum();
    return flat(gradients(loss, of, leaves != nullptr));
  }

  /// Calls module m as it is. \param at values to differentiate at; those of `inputs` count for nothing
  Tensor plain(const Tensors& at, std::size_t m, Tensors inputs, Tensors* leaves = nullptr) const {
    if (op_.is_random) torch::manual_seed(kSeed);
    Tensors own;
    Tensors& of = leaves != nullptr ? *leaves : own;
    restore();
    if (op_.is_module()) of = nets_[m]->parameters();
    for (std::size_t k = 0; k < of.size(); ++k) {
      const torch::NoGradGuard no_grad;
      of[k].copy_(at[k]);
    }
    const std::size_t parameters = of.size();
    for (std::size_t k = 0; k < differentiable_; ++k) {
      inputs[k] = at[parameters + k].detach().clone().set_requires_grad(true);
      of.push_back(inputs[k]);
    }
    return op_.is_module() ? nets_[m]->forward(inputs) : op_.function(inputs);
  }

  static Tensors gradients(const Tensor& of, const Tensors& leaves, bool create_graph) {
    auto result = torch::autograd::grad({of}, leaves, {}, /*retain_graph=*/true, create_graph, /*allow_unused=*/true);
    for (std::size_t k = 0; k < leaves.size(); ++k) {
      if (!result[k].defined()) result[k] = torch::zeros_like(leaves[k]);
      if (result[k].is_sparse()) result[k] = result[k].to_dense();
    }
    return result;
  }

  static Tensor rows(const Tensor& of, const Tensors& leaves) {
    const Tensor elements = of.reshape({-1});
    Tensors all;
    for (int64_t e = 0; e < elements.numel(); ++e) {
      const Tensor element = elements[e];
      all.push_back(element.requires_grad() ? flat(gradients(element, leaves, false)) : flat(leaves).detach() * 0);
    }
    return torch::stack(all);
  }

  TensorDict fresh_buffers() const {
    return buffers_.map([](const Tensor& tensor) { return tensor.clone(); });
  }

  VmapOptions options(InDims in_dims) const { return {.in_dims = std::move(in_dims), .randomness = randomness()}; }

  const Operator& op_;
  std::vector<Tensors> samples_, directions_;
  std::size_t differentiable_ = 0;
  std::vector<std::shared_ptr<Net>> nets_;
  std::vector<NetState> states_;
  TensorDict params_, buffers_;
  bool is_floating_ = false;
  std::vector<int64_t> output_sizes_;
  Tensor weights_;
};

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
      return subject_.call(params, inputs, buffers);
    };
    const auto check = [&](const std::string& set_up, const std::function<bool(std::size_t)>& is_mapped) {
      compare("vmap", set_up, [&] { return subject_.map_samples(call, is_mapped); },
              {[&] { return stack([&](std::size_t i) { return mixed_output(is_mapped, i); }); }});
    };
    check("over all inputs", [](std::size_t) { return true; });
    if (subject_.samples()[0].size() > 1) {
      check("over the first input", [](std::size_t k) { return k == 0; });
      check("over all inputs but the first", [](std::size_t k) { return k > 0; });
    }
    if (subject_.has_parameters()) {
      compare("vmap of parameters", "", [&] { return subject_.map_modules(call); },
              {[&] { return stack([&](std::size_t m) { return subject_.output(m, 0); }); }});
    }
  }

  void check_gradients() {
    const auto gradients = [&](const TensorDict& params, const Tensors& inputs, const TensorDict& buffers) {
      return subject_.gradients_of(params, inputs, buffers);
    };
    compare("vmap(grad)", "", [&] { return rows_of(subject_.map_samples(gradients, all)); },
            {[&] { return stack([&](std::size_t i) { return subject_.gradient(0, i); }); },
             [&] { return stack([&](std::size_t i) { return subject_.gradient_by_differences(0, i); }); }});
    if (subject_.has_parameters()) {
      compare("vmap(grad) of parameters", "", [&] { return rows_of(subject_.map_modules(gradients)); },
              {[&] { return stack([&](std::size_t m) { return subject_.gradient(m, 0); }); },
               [&] { return stack([&](std::size_t m) { return subject_.gradient_by_differences(m, 0); }); }});
    }
  }

  void check_tangents() {
    const Variables direction = subject_.variables_like(subject_.direction(0));
    const auto push = [&](const TensorDict& params, const Tensors& inputs, const TensorDict& buffers) {
      return subject_.push(params, inputs, buffers, direction);
    };
    const Give tangent = subject_.of_first(push);
    compare(
        "jvp", "", [&] { return tangent().unsqueeze(0); },
        along([](std::size_t) { return std::pair(std::size_t{0}, std::size_t{0}); }, 1));
    if (!subject_.op().holds_a_part_fixed) {
      compare("jvp", "as a difference", tangent,
              {[&] { return subject_.difference_of_outputs(0, subject_.direction(0)); }, {}, kToleranceOfDifferences});
    }
    const auto push_each = [&](const Tensors& list) {
      return subject_.of_first([&](const TensorDict& params, const Tensors& inputs, const TensorDict& buffers) {
        return subject_.push(params, inputs, buffers, subject_.variables_like(list));
      })();
    };
    compare(
        "vmap(jvp)", "over directions", [&] { return subject_.map_directions(push_each); },
        along([](std::size_t i) { return std::pair(std::size_t{0}, i); }, kSamples));
    compare(
        "vmap(jvp)", "over inputs, with one direction", [&] { return subject_.map_samples(push, all); },
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
    return derivative({each([this](std::size_t i, const Tensors& v) { return jacobian(i).mv(flat(v)); }),
                       each([this](std::size_t i, const Tensors& v) { return subject_.difference_of_outputs(i, v); })});
  }

  void check_jacobians() {
    const auto call = subject_.of_list([&](const Variables& variables, const Tensors& of, const TensorDict& buffers) {
      return subject_.call(variables, of, buffers);
    });
    const Tensors at = subject_.values(0, 0);
    const JacobianOptions options = {.randomness = subject_.randomness()};
    const Expected expected = {[&] { return jacobian(0); }, [&] { return subject_.jacobian_by_differences(0); }};
    compare(
        "jacrev", "", [&] { return as_matrix(jacrev(call, options)(at), at); }, expected);
    compare(
        "jacfwd", "", [&] { return as_matrix(jacfwd(call, options)(at), at); }, derivative(expected));
  }

  void check_second_derivatives() {
    const auto loss = subject_.of_list([&](const Variables& variables, const Tensors& of, const TensorDict& buffers) {
      return subject_.loss(variables, of, buffers);
    });
    const Tensors at = subject_.values(0, 0), direction = subject_.direction(0);
    const auto slope = [&](const Tensors& list) { return dot(grad(loss)(list), direction); };
    compare("grad(grad)", "", [&] { return flat(grad(slope)(at)); },
            {[&] { return second_derivative().mv(flat(direction)); },
             [&] { return subject_.difference_of_gradients(direction); }});
    Tensor found;
    const JacobianOptions options = {.randomness = subject_.randomness()};
    compare("hessian", "",
            [&] {
              Tensors rows;
              const std::vector<Tensors> blocks = hessian(loss, options)(at);
              for (std::size_t k = 0; k < at.size(); ++k) rows.push_back(as_matrix(blocks[k], at));
              return found = torch::cat(rows);
            },
            {[&] { return second_derivative(); }, [&] { return subject_.second_derivative_by_differences(); }});
    if (!found.defined()) return;
    compare("hessian", "symmetric", [&] { return found; }, {[&] { return found.t(); }});
    compare("hessian", "as a difference", [&] { return found.mv(flat(direction)); },
            {[&] { return subject_.difference_of_gradients(direction); }, {}, kToleranceOfDifferences});
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
    return subject_.output(0, inputs);
  }

  const Tensor& jacobian(std::size_t i) const {
    if (!jacobians_[i].defined()) jacobians_[i] = subject_.jacobian(i);
    return jacobians_[i];
  }
  const Tensor& second_derivative() const {
    if (!second_derivative_.defined()) second_derivative_ = subject_.second_derivative();
    return second_derivative_;
  }

  const Subject subject_;
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
