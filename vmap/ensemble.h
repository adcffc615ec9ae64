// Ensemble: m modules of one class that run and train as one.
//
//   Ensemble ensemble(8, [] { return Net(); });              // or from a std::vector<Net>
//   torch::optim::Adam optimizer(ensemble.parameters());
//   Tensor y = ensemble.forward(x);                           // [b, i] -> [m, b, o]
//   F::mse_loss(y, target.expand_as(y), F::MSELossFuncOptions().reduction(torch::kSum)).backward();
//   optimizer.step();                                         // each member learns by itself
//
// The members' parameters are stacked copies, leaves [m, ...]; one forward is one vmapped call. The first module that
// was given lends its structure: its own values take no part, but it must not run elsewhere during a call.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "functional/functional_call.h"
#include "tensordict/ties.h"
#include "vmap/stacked_state.h"
#include "vmap/vmap.h"

namespace graft {

/// Writes a state to one file, and reads it back. \throws c10::Error naming the file. See tensordict/archive.h.
void save_state(const StackedState& state, const std::string& file);
StackedState load_state(const std::string& file);

/// Copies the values of `source` into the tensors of `target`, in place.
/// \throws c10::ValueError listing every leaf that differs in name, shape, dtype or device; nothing is copied then.
void assign_state(const StackedState& target, const StackedState& source);

/// An ensemble of modules behind `Handle`: a holder such as torch::nn::Linear, or a shared_ptr.
/// Python: tensordict.nn.EnsembleModule, and the recipe of torch.func.stack_module_state.
template <typename Handle>
class Ensemble {
 public:
  /// Copies the state of `modules`. \throws as stack_module_state does.
  explicit Ensemble(const std::vector<Handle>& modules)
      : structure_(checked_front(modules)), state_(stack_module_state(modules)) {}

  /// Copies the state of `members` modules that `make()` returns, each with its own initial values.
  template <typename Make>
  Ensemble(int64_t members, Make make) : Ensemble(make_members(members, make)) {}

  /// Returns the number of members.
  int64_t size() const { return state_.params.batch_size()[0]; }

  /// Returns every member's output for one shared input: `[b, i] -> [m, b, o]`. Random operators draw for each member.
  template <typename... Arguments>
  auto forward(const Arguments&... arguments) const {
    return call<Arguments...>(std::nullopt, arguments...);
  }

  /// Returns every member's output for its own input: `[m, b, i] -> [m, b, o]`.
  template <typename... Arguments>
  auto forward_each(const Arguments&... arguments) const {
    return call<Arguments...>(0, arguments...);
  }

  /// The stacked parameters, for a torch::optim optimiser: each once, whatever its number of names.
  std::vector<Tensor> parameters() const { return distinct(state_.params.values()); }

  /// The stacked state. Its tensors are the ensemble's own.
  const StackedState& state() const { return state_; }

  /// The module that lends its structure, for functional_call.
  const Handle& structure() const { return structure_; }

  /// Copies member i into the ith module. \throws as unstack_module_state does.
  void write_members(const std::vector<Handle>& modules) const { unstack_module_state(state_, modules); }

  /// Writes the state to one file; reads it back into the ensemble's own tensors, so that optimisers stay valid.
  /// \throws c10::Error naming the file; \throws c10::ValueError listing every leaf that does not fit. After an
  ///     exception the ensemble is as it was.
  void save(const std::string& file) const { save_state(state_, file); }
  void load(const std::string& file) const { assign_state(state_, load_state(file)); }

 private:
  static const Handle& checked_front(const std::vector<Handle>& modules) {
    TORCH_CHECK_VALUE(!modules.empty(), "Ensemble: expected at least one module");
    return modules.front();
  }

  template <typename Make>
  static std::vector<Handle> make_members(int64_t members, Make& make) {
    std::vector<Handle> modules;
    for (int64_t i = 0; i < members; ++i) modules.push_back(make());
    return modules;
  }

  template <typename... Arguments>
  auto call(std::optional<int64_t> in_dim, const Arguments&... arguments) const {
    std::vector<MappedDims> in_dims(2 + sizeof...(Arguments), in_dim);
    in_dims[0] = 0;
    in_dims[1] = 0;
    const auto run = [this](const TensorDict& params, const TensorDict& buffers, const Arguments&... inputs) {
      return functional_call(structure_, {params, buffers}, inputs...);
    };
    return vmap(run, {.in_dims = InDims(in_dims), .randomness = Randomness::kDifferent})(state_.params, state_.buffers,
                                                                                         arguments...);
  }

  Handle structure_;
  StackedState state_;
};

}  // namespace graft
