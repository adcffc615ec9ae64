// Random modules, trees, options and bodies: whatever happens in a scope, afterwards everything is as before, and
// within it the module computes what a twin computes that was given the same values by plain LibTorch.
//
// A failure prints its seed. That seed alone:
//   ./bazelw test //tests/fuzz:swap_fuzz_test --test_env=GRAFT_FUZZ_SEED=<seed> --test_env=GRAFT_FUZZ_RUNS=1
// Many more than the suite has time for: //tests/fuzz:swap_fuzz_long_test.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "functional/functional_call.h"
#include "functional/internal/module_registry.h"
#include "functional/to_module.h"
#include "tests/fuzz/random_net.h"
#include "tests/fuzz/swap_model.h"
#include "tests/testing/module_snapshot.h"

namespace graft::testing {
namespace {

constexpr int kDeepest = 2;

/// Sees tensors as they are, even within a functional_call that exchanges them.
struct Unredirected {
  c10::impl::ExcludeDispatchKeyGuard exclude{c10::DispatchKey::TESTING_ONLY_GenericMode};
};

Tensor copy_of(const Tensor& tensor) {
  const Unredirected guard;
  const torch::NoGradGuard no_grad;
  return tensor.defined() ? tensor.detach().clone() : Tensor();
}

bool are_equal(const Tensor& left, const Tensor& right) {
  const Unredirected guard;
  return left.scalar_type() == right.scalar_type() && left.sizes() == right.sizes() && left.equal(right);
}

/// A tensor and what it was like.
struct Fact {
  explicit Fact(const Tensor& held) : tensor(held), values(copy_of(held)) {
    if (!held.defined()) return;
    requires_grad = held.requires_grad();
    strides = held.strides().vec();
    version = held._version();
    gradient = held.unsafeGetTensorImpl()->grad().unsafeGetTensorImpl();
  }

  bool is_like(const Fact& other, bool same_version) const {
    if (!tensor.defined() || !other.tensor.defined()) return tensor.defined() == other.tensor.defined();
    return requires_grad == other.requires_grad && strides == other.strides && gradient == other.gradient &&
           are_equal(values, other.values) && (!same_version || version == other.version);
  }

  Tensor tensor, values;
  bool requires_grad = false;
  std::vector<int64_t> strides;
  int64_t version = 0;
  const void* gradient = nullptr;
};

std::ostream& operator<<(std::ostream& out, const Fact& fact) {
  return out << fact.values << ", strides " << fact.strides << ", requires_grad " << fact.requires_grad << ", version "
             << fact.version;
}

/// A registry by its module and kind.
using RegistryId = std::pair<torch::nn::Module*, bool>;
/// An entry by its registry and name; a cell by its number.
using HandleId = std::tuple<torch::nn::Module*, bool, std::string>;

internal::TensorRegistry& registry_of(const RegistryId& id) {
  return id.second ? internal::buffer_registry(*id.first) : internal::parameter_registry(*id.first);
}

HandleId id_of(const Entry& entry) { return {entry.module, entry.is_buffer, entry.name}; }
HandleId id_of(const RandomNet& net, const Cell& cell) {
  return {nullptr, false, std::to_string(&cell - net.cells().data())};
}

/// Every handle of a net, and the order of its registries.
struct State {
  explicit State(RandomNet& net) {
    for (torch::nn::Module* const module : net.modules()) {
      for (const bool buffers : {false, true}) {
        std::vector<std::string>& order = names[{module, buffers}];
        order.clear();  // a shared module comes twice
        for (const auto& item : registry_of({module, buffers}).items()) {
          order.push_back(item.key());
          handles.insert_or_assign({module, buffers, item.key()}, Fact(item.value()));
        }
      }
    }
    for (const Cell& cell : net.cells()) {
      if (const Tensor* const handle = cell.handle()) handles.insert_or_assign(id_of(net, cell), Fact(*handle));
    }
  }

  /// Returns what a tensor was like, or nullptr.
  const Fact* find(const Tensor& tensor) const {
    for (const auto& [id, fact] : handles) {
      if (fact.tensor.is_same(tensor)) return &fact;
    }
    return nullptr;
  }

  std::map<RegistryId, std::vector<std::string>> names;
  std::map<HandleId, Fact> handles;
};

/// What a forward did.
struct Outcome {
  Tensor result;  ///< undefined if it threw
  std::string error;
};

template <typename Forward>
Outcome outcome_of(const Forward& forward) {
  try {
    return {forward(), ""};
  } catch (const c10::Error& error) {
    return {{}, error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {{}, error.what()};
  }
}

/// Will forward write to it? In training always, else if the normalisation was made without it.
bool is_written_by_forward(const Cell& cell) {
  if (!cell.member.starts_with("running_") && cell.member != "num_batches_tracked") return false;
  const auto& norm = dynamic_cast<const torch::nn::BatchNorm1dImpl&>(*cell.module);
  return norm.is_training() || !norm.options.track_running_stats();
}

struct BodyError {};

/// How often each thing was seen, to know that the runs are worth something.
struct Counts {
  int64_t installed = 0, index_refusals = 0, value_refusals = 0, same_results = 0, same_failures = 0, gradients = 0,
          thrown = 0;
};

class FuzzRun {
 public:
  FuzzRun(uint64_t seed, Counts& counts)
      : net_(seed, Ties::kDrawn),
        twin_(seed, Ties::kNone),
        random_(~seed),
        counts_(counts),
        has_ties_(net_.has_ties()) {}

  void run() {
    for (int64_t count = 1 + random_.below(3); count > 0 && !::testing::Test::HasFailure(); --count) {
      log_.str("");
      try {
        scope(/*depth=*/0);
      } catch (const BodyError&) {
        ++counts_.thrown;
      }
    }
  }

  /// Returns what the last scope and those in it did.
  std::string log() const { return log_.str(); }

 private:
  /// One installation: what it was asked for, what it has to do, and how things were before.
  struct Scope {
    int depth;
    Mechanism mechanism;
    torch::nn::Module* target;
    Net* called;
    ToModuleOptions options;
    TensorDict tree, arrived;
    ModuleView view;
    Prediction expected;
    State before;
    Snapshot snapshot;
    std::map<const at::TensorImpl*, Tensor> values;  ///< of the leaves, before they are installed
    std::set<const at::TensorImpl*> contents;        ///< the tensors that get other values
    std::set<HandleId> written;
    TensorDict swap_dest;
    int layout_changes;  ///< that there had been
  };

  /// What the twin did, and what its handles stand for.
  struct Comparison {
    Outcome expected;
    std::vector<Tensor> twin_values;  ///< one for each cell
    std::vector<Tensor> tensors;      ///< what the net reads there
  };

  void scope(int depth);
  Scope draw_scope(int depth);
  ToModuleOptions draw_options(bool allows_load);
  TensorDict draw_tree(const ModuleView& view, bool repeats, bool own_tensors);
  Tensor draw_leaf(const Entry& entry, const ModuleView& view, bool own_tensors);
  static bool is_mixed(const Scope& scope);
  bool is_history_needed(const Scope& scope) const;
  static bool have_overlaps(const Scope& scope);
  void plan(Scope& scope);

  void by_guard(Scope& scope);
  void for_good(Scope& scope);
  void by_call(Scope& scope);
  void put_back(Scope& scope, const std::optional<TensorDict>& old);

  template <typename Install>
  bool is_refused(Scope& scope, const Install& install);
  void check_installed(const Scope& scope);
  void check_old(const Scope& scope, const TensorDict& old);
  void check_current(const Scope& scope, const TensorDict& current);
  void compare(const Comparison& expected, const Outcome& got, bool with_gradients);
  void compare_gradients(const Comparison& expected, const Tensor& got);
  std::map<HandleId, HandleId> resets_of(const Scope& scope) const;
  void check_after(const Scope& scope, const State& inside, const State& end);
  std::optional<Comparison> twin_forward(const Scope& scope);
  bool writes_to_ties(const std::vector<Tensor>& tensors);
  Tensor tensor_read_by(const Scope& scope, const Cell& cell) const;
  Tensor resolved(const Tensor& tensor) const { return resolved(tensor, redirects_.size()); }
  Tensor resolved(const Tensor& tensor, std::size_t calls) const;
  void forward_in(const Scope& scope);

  template <typename Body>
  bool throws(const Body& body);
  void body(const Scope& scope);
  void assign();
  void write();
  void erase(const Scope& scope);
  void touch(const Tensor& tensor);
  void touch_statistics(const Scope& scope);
  bool is_touched(const Tensor& tensor) const;
  bool has_moved(const Tensor& tensor) const;

  RandomNet net_, twin_;
  Random random_;
  Counts& counts_;
  std::vector<std::vector<NewTensor>> redirects_;  ///< of the calls that are running
  std::vector<Tensor> touched_;                    ///< tensors that a body or a forward wrote to
  std::vector<c10::Storage> touched_storages_;
  std::vector<Tensor> moved_;  ///< tensors whose versions Graft may move
  /// Are there members that hold what another entry holds? Where such a module is given one leaf for both, nobody can
  /// tell afterwards whose the members were.
  bool has_ties_;
  int64_t writes_ = 0;  ///< by whomever
  int for_good_ = 0;    ///< how many installations there are that only the old values undo
  int extras_ = 0;
  int layout_changes_ = 0;  ///< how often a body registered or unregistered something
  std::ostringstream log_;
};

/// What operators compute with when they are given a tensor within the first `calls` calls: what the outer ones
/// exchange it for, the inner ones may exchange again, and a leaf stands for what it stands for outside.
Tensor FuzzRun::resolved(const Tensor& tensor, std::size_t calls) const {
  if (calls == 0 || !tensor.defined()) return tensor;
  for (const Tensor& seen : {tensor, resolved(tensor, calls - 1)}) {
    for (const auto& [old, leaf] : redirects_[calls - 1]) {
      if (old.is_same(seen)) return resolved(leaf, calls - 1);
    }
  }
  return resolved(tensor, calls - 1);
}

void FuzzRun::touch(const Tensor& tensor) {
  if (!tensor.defined()) return;
  ++writes_;
  touched_.push_back(tensor);
  touched_storages_.push_back(tensor.storage());
}

bool FuzzRun::is_touched(const Tensor& tensor) const {
  if (!tensor.defined()) return false;
  const auto is_it = [&](const Tensor& other) { return other.is_same(tensor); };
  const auto is_its = [&](const c10::Storage& other) { return other.is_alias_of(tensor.storage()); };
  return std::any_of(touched_.begin(), touched_.end(), is_it) ||
         std::any_of(touched_storages_.begin(), touched_storages_.end(), is_its);
}

/// A version counter is shared by all tensors over one storage.
bool FuzzRun::has_moved(const Tensor& tensor) const {
  return std::any_of(moved_.begin(), moved_.end(), [&](const Tensor& moved) {
    return moved.is_same(tensor) || (tensor.defined() && moved.is_alias_of(tensor));
  });
}

/// What the next forward writes to.
void FuzzRun::touch_statistics(const Scope& scope) {
  for (const Cell& cell : net_.cells()) {
    if (is_written_by_forward(cell) && cell.handle() != nullptr) touch(tensor_read_by(scope, cell));
  }
}

ToModuleOptions FuzzRun::draw_options(bool allows_load) {
  ToModuleOptions options;
  options.inplace = random_.chance(25);
  options.non_blocking = random_.chance(options.inplace ? 20 : 2);
  options.strict = random_.chance(15);
  options.use_state_dict = allows_load && random_.chance(options.inplace ? 3 : 12);
  options.preserve_module_state = !random_.chance(30);
  options.check_shapes = !random_.chance(options.inplace ? 3 : 20);
  options.return_swap = !random_.chance(15);
  return options;
}

Tensor FuzzRun::draw_leaf(const Entry& entry, const ModuleView& view, bool own_tensors) {
  const Tensor& held = *entry.handle;
  std::vector<int64_t> shape = held.defined() ? held.sizes().vec() : std::vector<int64_t>{3};
  at::ScalarType type = held.defined() ? held.scalar_type() : net_.x().scalar_type();
  const auto is_other = [&](int64_t percent) { return random_.chance(percent); };
  if (own_tensors && !has_ties_ && is_other(4)) {
    std::vector<Tensor> own;
    for (const Entry& other : view.entries) {
      if (other.handle->defined() && other.handle->sizes() == at::IntArrayRef(shape)) own.push_back(*other.handle);
    }
    if (!own.empty()) return random_.pick(own);
  }
  if (is_other(2)) shape.insert(shape.begin(), 2);
  if (is_other(1)) shape = {5};
  if (is_other(2)) type = type == torch::kDouble ? torch::kFloat : torch::kDouble;
  if (is_other(1)) type = torch::kLong;
  if (type == torch::kLong) return torch::randint(1, 5, shape, torch::kLong);
  Tensor leaf = torch::rand(shape, torch::dtype(torch::kDouble)).add(0.1).to(type);
  if (is_other(20)) {
    shape.insert(shape.begin(), 2);
    leaf = torch::rand(shape, type).add_(0.1)[1];
  }
  if (is_other(10) && leaf.dim() == 2 && leaf.size(0) == leaf.size(1)) leaf = leaf.t();
  if (is_other(35)) leaf.set_requires_grad(true);
  return leaf;
}

TensorDict FuzzRun::draw_tree(const ModuleView& view, bool repeats, bool own_tensors) {
  std::vector<std::string> names;
  const bool whole = random_.chance(45);
  for (const auto& [path, index] : view.names) {
    const bool is_empty = !view.entries[index].handle->defined();
    if (is_empty ? random_.chance(15) : whole || random_.chance(50)) names.push_back(path);
  }
  if (random_.chance(50)) random_.shuffle(names);
  std::vector<std::pair<std::string, Tensor>> leaves;
  std::map<const void*, Tensor> leaf_of;  // of a tensor or an entry
  const bool agrees = random_.chance(85);
  for (const std::string& name : names) {
    const Entry& entry = *view.find(name);
    const void* const identity =
        entry.handle->defined() ? static_cast<const void*>(entry.handle->unsafeGetTensorImpl()) : &entry;
    Tensor& leaf = leaf_of[identity];
    if (!leaf.defined() || !agrees) leaf = draw_leaf(entry, view, own_tensors);
    const bool is_repeated = repeats && !leaves.empty() && !has_ties_ && random_.chance(4);
    if (is_repeated && entry.handle->defined() && leaves.back().second.sizes() == entry.handle->sizes()) {
      leaf = leaves.back().second;
    }
    leaves.emplace_back(name, leaf);
  }
  TensorDict tree(leaves);
  if (random_.chance(3)) tree.set("nothing.here", torch::ones({3}));
  if (random_.chance(2)) tree.set("m0_", torch::ones({3}));
  return tree;
}

FuzzRun::Scope FuzzRun::draw_scope(int depth) {
  Mechanism mechanism = Mechanism::kCall;
  if (random_.chance(65)) mechanism = random_.chance(65) ? Mechanism::kGuard : Mechanism::kForGood;
  Net* const called = random_.chance(70) ? &net_.root() : random_.pick(net_.nets());
  torch::nn::Module* target = called;
  if (mechanism != Mechanism::kCall && random_.chance(25)) {
    target = random_.pick(net_.modules());
  }
  ModuleView view(*target, net_.cells());
  const bool good = mechanism == Mechanism::kForGood;
  // Entries that an outer guard gave one leaf may count as tied within it or not, so only the innermost does that.
  // Within a call the module's own tensors may mean their leaves.
  const bool own_tensors = !good && depth == kDeepest && redirects_.empty();
  TensorDict tree = draw_tree(view, /*repeats=*/good || depth == kDeepest, own_tensors);
  // A load goes through every name of the module, one after the other: only without ties is it clear what comes of it.
  std::set<const at::TensorImpl*> tensors;
  std::size_t count = 0;
  bool is_detached = false;
  for (const auto& [path, index] : view.names) {
    is_detached |= view.entries[index].way == Way::kDetached;
    if (!view.entries[index].handle->defined()) continue;
    tensors.insert(view.entries[index].handle->unsafeGetTensorImpl());
    ++count;
  }
  const bool is_plain = !has_ties_ && !is_detached && tensors.size() == count;
  const bool can_load = mechanism != Mechanism::kCall && depth == 0 && is_plain;
  ToModuleOptions options = draw_options(can_load);
  return {.depth = depth,
          .mechanism = mechanism,
          .target = target,
          .called = called,
          .options = options,
          .tree = tree,
          .arrived = tree,
          .view = std::move(view),
          .expected = {},
          .before = State(net_),
          .snapshot = Snapshot(net_.root()),
          .values = {},
          .contents = {},
          .written = {},
          .swap_dest = TensorDict({{"other", torch::ones({1})}}),
          .layout_changes = layout_changes_};
}

/// Predicts, with what a load makes of the leaves.
void FuzzRun::plan(Scope& scope) {
  const ToModuleOptions& options = scope.options;
  if (options.use_state_dict) {
    scope.arrived = TensorDict();
    for (const auto& [path, leaf] : scope.tree.leaves()) {
      const Entry* const entry = scope.view.find(path);
      const bool is_known = entry != nullptr && entry->handle->defined();
      scope.arrived.set(path, copy_of(leaf).to(is_known ? entry->handle->scalar_type() : leaf.scalar_type()));
    }
  }
  scope.expected = predict(scope.view, scope.arrived, scope.mechanism, options);
  if (options.use_state_dict) {
    for (const auto& [path, index] : scope.view.names) {
      const Tensor& held = *scope.view.entries[index].handle;
      if (held.defined()) moved_.push_back(held);
      if (held.defined() || scope.tree.find(path) == nullptr) continue;
      const bool contradicts =
          options.inplace || options.non_blocking || (options.swap_dest != nullptr && !options.return_swap);
      if (contradicts) continue;
      if (scope.expected.refusal != Refusal::kIndex) scope.expected.named.clear();
      scope.expected.refusal = Refusal::kIndex;
      scope.expected.named.push_back(path);
    }
  }
  for (const Tensor& leaf : scope.arrived.values()) scope.values.emplace(leaf.unsafeGetTensorImpl(), copy_of(leaf));
  for (const NewTensor& content : scope.expected.contents) {
    ++writes_;
    scope.contents.insert(content.old.unsafeGetTensorImpl());
    moved_.push_back(content.old);
  }
  for (const Entry* const entry : scope.expected.written) {
    scope.written.insert(id_of(*entry));
    for (const Cell* const cell : entry->cells) scope.written.insert(id_of(net_, *cell));
    for (const Cell& cell : net_.cells()) {
      if (cell.handle() == entry->handle)
        scope.written.insert(id_of(net_, cell));  // of a class that reads its registry
    }
  }
}

/// Are there two tensors over one storage among those that leaves are meant for? A copy to both is not to be predicted.
bool FuzzRun::have_overlaps(const Scope& scope) {
  std::map<const c10::StorageImpl*, const at::TensorImpl*> holder_of;
  for (const auto& [path, leaf] : scope.tree.leaves()) {
    const Entry* const entry = scope.view.find(path);
    if (entry == nullptr || !entry->handle->defined()) continue;
    const at::TensorImpl* const held = entry->handle->unsafeGetTensorImpl();
    if (holder_of.emplace(held->storage().unsafeGetStorageImpl(), held).first->second != held) return true;
  }
  return false;
}

/// Is a tensor replaced in some handles and changed in others, for good? Old values cannot say both.
bool FuzzRun::is_mixed(const Scope& scope) {
  return std::any_of(scope.expected.handles.begin(), scope.expected.handles.end(), [&](const NewHandle& replaced) {
    return replaced.handle->defined() && scope.contents.contains(replaced.handle->unsafeGetTensorImpl());
  });
}

/// Does what happens depend on whether earlier calls have found the handles that nobody knows?
bool FuzzRun::is_history_needed(const Scope& scope) const {
  if (!scope.view.has_hidden_handles(net_.cells())) return false;
  if (scope.mechanism != Mechanism::kCall) return true;
  const auto has_other_type = [&](const auto& item) {
    const Entry* const entry = scope.view.find(item.path);
    return entry != nullptr && entry->handle->defined() && entry->handle->scalar_type() != item.value.scalar_type();
  };
  const auto leaves = scope.tree.leaves();
  return std::any_of(leaves.begin(), leaves.end(), has_other_type);
}

void FuzzRun::scope(int depth) {
  Scope scope = draw_scope(depth);
  if (random_.chance(15)) scope.options.swap_dest = &scope.swap_dest;
  if (scope.mechanism == Mechanism::kCall) scope.options = {};
  if (have_overlaps(scope)) scope.options.inplace = scope.options.non_blocking = false;
  plan(scope);
  if (is_mixed(scope) || is_history_needed(scope)) return;
  static const char* const kNames[] = {"guard", "for good", "call"};
  log_ << std::string(2 * depth, ' ') << kNames[static_cast<int>(scope.mechanism)] << " on " << scope.target->name()
       << ", leaves";
  for (const auto& [path, leaf] : scope.tree.leaves()) {
    log_ << ' ' << path << leaf.sizes() << leaf.scalar_type() << (leaf.requires_grad() ? "*" : "");
  }
  const ToModuleOptions& o = scope.options;
  log_ << "; inplace " << o.inplace << " strict " << o.strict << " state_dict " << o.use_state_dict << " preserve "
       << o.preserve_module_state << " shapes " << o.check_shapes << " expected refusal "
       << static_cast<int>(scope.expected.refusal) << '\n';
  switch (scope.mechanism) {
    case Mechanism::kGuard:
      return by_guard(scope);
    case Mechanism::kForGood:
      return for_good(scope);
    case Mechanism::kCall:
      return by_call(scope);
  }
}

/// Installs, or checks the refusal and that nothing has changed.
template <typename Install>
bool FuzzRun::is_refused(Scope& scope, const Install& install) {
  Refusal refusal = Refusal::kNone;
  std::string text;
  try {
    install();
  } catch (const c10::IndexError& error) {
    refusal = Refusal::kIndex;
    text = error.what_without_backtrace();
  } catch (const c10::ValueError& error) {
    refusal = Refusal::kValue;
    text = error.what_without_backtrace();
  }
  EXPECT_EQ(static_cast<int>(refusal), static_cast<int>(scope.expected.refusal)) << text;
  if (refusal == Refusal::kNone) {
    ++counts_.installed;
    return scope.expected.refusal != Refusal::kNone;
  }
  ++(refusal == Refusal::kIndex ? counts_.index_refusals : counts_.value_refusals);
  for (const std::string& name : scope.expected.named) EXPECT_NE(text.find(name), std::string::npos) << name << text;
  EXPECT_EQ(scope.swap_dest.size(), 1);
  scope.written.clear();
  scope.contents.clear();
  const State now(net_);
  check_after(scope, now, now);
  return true;
}

void FuzzRun::by_guard(Scope& scope) {
  std::optional<ToModuleGuard> guard;
  if (is_refused(scope, [&] { guard.emplace(scope.tree, *scope.target, scope.options); })) return;
  const State inside(net_);
  check_installed(scope);
  check_old(scope, guard->swapped_out());
  check_current(scope, guard->current());
  if (scope.options.swap_dest != nullptr) {
    EXPECT_EQ(scope.swap_dest.size(), guard->swapped_out().size() + 1);
    check_old(scope, scope.swap_dest);
  }
  forward_in(scope);
  const bool has_thrown = throws([&] { body(scope); });
  const State end(net_);
  guard.reset();
  check_after(scope, inside, end);
  if (has_thrown) throw BodyError();
}

/// Runs the net and its twin.
void FuzzRun::forward_in(const Scope& scope) {
  if (random_.chance(20)) return;
  if (const auto expected = twin_forward(scope)) {
    touch_statistics(scope);
    compare(*expected, outcome_of([&] { return net_.forward(); }), /*with_gradients=*/true);
  }
}

void FuzzRun::for_good(Scope& scope) {
  std::optional<TensorDict> old;
  if (is_refused(scope, [&] { old = to_module(scope.tree, *scope.target, scope.options); })) return;
  const State inside(net_);
  EXPECT_EQ(old.has_value(), scope.options.return_swap);
  check_installed(scope);
  if (old) check_old(scope, *old);
  if (scope.options.swap_dest != nullptr) check_old(scope, scope.swap_dest);
  forward_in(scope);
  ++for_good_;
  const bool has_thrown = throws([&] { body(scope); });
  --for_good_;
  put_back(scope, old);
  check_after(scope, inside, State(net_));
  if (has_thrown) throw BodyError();
}

/// Calls to_module with the old values; empties by hand what was empty, which no leaf can say.
void FuzzRun::put_back(Scope& scope, const std::optional<TensorDict>& old) {
  TensorDict values, exact;
  for (const auto& [path, leaf] : scope.tree.leaves()) {
    const Entry& entry = *scope.view.find(path);
    const Fact& before = scope.before.handles.at(id_of(entry));
    if (!before.tensor.defined()) {
      registry_of({entry.module, entry.is_buffer})[entry.name] = Tensor();
      for (const Cell* const cell : entry.cells) *cell->handle() = Tensor();
    } else if (scope.contents.contains(before.tensor.unsafeGetTensorImpl())) {
      values.set(path, old ? old->at(path) : before.values);
    } else {
      exact.set(path, old ? old->at(path) : before.tensor);
    }
  }
  // A tensor that was changed under several names is given one value.
  std::map<const at::TensorImpl*, Tensor> value_of;
  for (const auto& [path, value] : TensorDict(values).leaves()) {
    const Entry& entry = *scope.view.find(path);
    values.set(
        path,
        value_of.emplace(scope.before.handles.at(id_of(entry)).tensor.unsafeGetTensorImpl(), value).first->second);
  }
  to_module(exact, *scope.target, {.preserve_module_state = false, .check_shapes = false});
  to_module(values, *scope.target, {.inplace = scope.options.inplace});
}

void FuzzRun::by_call(Scope& scope) {
  std::optional<State> inside, end;
  const auto expected = scope.expected.refusal == Refusal::kNone ? twin_forward(scope) : std::nullopt;
  touch_statistics(scope);
  bool has_thrown = false;
  const auto in_call = [&] {
    redirects_.push_back(scope.expected.redirects);
    check_installed(scope);
    inside.emplace(net_);
    has_thrown = throws([&] { body(scope); });
    end.emplace(net_);
    for (const Cell& cell : net_.cells()) {  // what the body has assigned, and forward will write to
      if (is_written_by_forward(cell) && cell.handle() != nullptr) touch(resolved(*cell.handle()));
    }
    redirects_.pop_back();
    if (has_thrown) throw BodyError();
  };
  const bool at_start = random_.chance(10);
  (at_start ? scope.called->at_start : scope.called->at_end) = in_call;
  const int64_t writes = writes_;
  Outcome got;
  const bool in_two = random_.chance(30);
  const std::size_t cut = random_.below(static_cast<int64_t>(scope.tree.size()) + 1);
  const auto call = [&] {
    try {
      got = outcome_of([&] {
        if (!in_two) return functional_call(*scope.called, scope.tree, net_.x());
        TensorDict first, second;
        for (std::size_t i = 0; i < scope.tree.size(); ++i) {
          (i < cut ? first : second).set(scope.tree.keys()->path(i), scope.tree.values()[i]);
        }
        return functional_call(*scope.called, {first, second}, net_.x());
      });
    } catch (const BodyError&) {
    }
  };
  if (scope.expected.refusal != Refusal::kNone) {
    const bool refused = is_refused(scope, [&] {
      const TensorDict tree = scope.tree;
      functional_call(*scope.called, tree, net_.x());
    });
    EXPECT_TRUE(refused);
    scope.called->at_start = scope.called->at_end = nullptr;
    return;
  }
  call();
  scope.called->at_start = scope.called->at_end = nullptr;
  ++counts_.installed;
  if (!has_thrown && !at_start && expected) compare(*expected, got, /*with_gradients=*/writes == writes_);
  const State now(net_);
  check_after(scope, inside ? *inside : now, end ? *end : now);
  if (has_thrown) throw BodyError();
}

void FuzzRun::check_installed(const Scope& scope) {
  for (const auto& [handle, leaf, how] : scope.expected.handles) {
    if (scope.options.use_state_dict) {
      EXPECT_TRUE(are_equal(*handle, leaf));
    } else if (how == Install::kLeaf || (how == Install::kEither && handle->is_same(leaf))) {
      EXPECT_TRUE(handle->is_same(leaf));
    } else {
      EXPECT_FALSE(handle->is_same(leaf));
      EXPECT_TRUE(handle->is_alias_of(leaf) && handle->sizes() == leaf.sizes() && handle->strides() == leaf.strides());
      EXPECT_EQ(handle->storage_offset(), leaf.storage_offset());
    }
    EXPECT_EQ(handle->requires_grad(), how == Install::kAliasWithGrad || leaf.requires_grad());
  }
  for (const Entry* const entry : scope.expected.written) {
    for (const Cell* const cell : entry->cells) EXPECT_TRUE(cell->handle()->is_same(*entry->handle)) << entry->name;
  }
  for (const auto& [target, leaf] : scope.expected.contents) {
    EXPECT_TRUE(are_equal(target, scope.values.at(leaf.unsafeGetTensorImpl())));
    const bool is_shared = !scope.options.inplace && !scope.options.use_state_dict;
    EXPECT_TRUE(!is_shared || target.is_alias_of(leaf));
  }
  for (const auto& [id, fact] : State(net_).handles) {
    const Fact& before = scope.before.handles.at(id);
    const bool stays = !scope.written.contains(id) || scope.contents.contains(before.tensor.unsafeGetTensorImpl());
    EXPECT_TRUE(!stays || fact.tensor.is_same(before.tensor)) << std::get<2>(id);
  }
}

/// What was there, or copies of its values.
void FuzzRun::check_old(const Scope& scope, const TensorDict& old) {
  for (const auto& [path, leaf] : scope.tree.leaves()) {
    const Fact& before = scope.before.handles.at(id_of(*scope.view.find(path)));
    const Tensor* const given = old.find(path);
    ASSERT_EQ(given != nullptr, before.tensor.defined()) << path;
    if (given == nullptr) continue;
    const bool is_copy = scope.contents.contains(before.tensor.unsafeGetTensorImpl());
    EXPECT_TRUE(is_copy ? are_equal(*given, before.values) : given->is_same(before.tensor)) << path;
  }
}

void FuzzRun::check_current(const Scope& scope, const TensorDict& current) {
  EXPECT_EQ(current.size(), scope.tree.size());
  for (const auto& [path, leaf] : current.leaves()) {
    const Entry& entry = *scope.view.find(path);
    EXPECT_TRUE(leaf.is_same(*entry.handle)) << path;
  }
}

/// What the forward that follows computes with.
Tensor FuzzRun::tensor_read_by(const Scope& scope, const Cell& cell) const {
  for (const auto& [handle, leaf, how] : scope.expected.handles) {
    if (handle != cell.handle()) continue;
    return scope.mechanism == Mechanism::kCall ? resolved(leaf) : resolved(*handle);
  }
  for (const auto& [old, leaf] : scope.expected.redirects) {
    if (old.is_same(*cell.handle())) return resolved(leaf);
  }
  const Tensor tensor = resolved(*cell.handle());
  for (const auto& [old, leaf] : scope.expected.redirects) {
    if (old.is_same(tensor)) return resolved(leaf);
  }
  return tensor;
}

/// Does forward write to what other handles hold too? The twin's handles share nothing.
bool FuzzRun::writes_to_ties(const std::vector<Tensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is_written_by_forward(net_.cells()[i]) || !tensors[i].defined()) continue;
    const auto shares = [&](const Tensor& other) { return other.defined() && other.is_alias_of(tensors[i]); };
    if (std::count_if(tensors.begin(), tensors.end(), shares) > 1) return true;
  }
  return false;
}

std::optional<FuzzRun::Comparison> FuzzRun::twin_forward(const Scope& scope) {
  Comparison comparison;
  for (std::size_t i = 0; i < net_.cells().size(); ++i) {
    if (net_.cells()[i].handle() == nullptr) return std::nullopt;  // a body has unregistered it
    const Tensor tensor = tensor_read_by(scope, net_.cells()[i]);
    Tensor value = copy_of(tensor);
    if (tensor.defined()) value.set_requires_grad(tensor.requires_grad());
    *twin_.cells()[i].handle() = value;
    comparison.twin_values.push_back(value);
    comparison.tensors.push_back(tensor);
  }
  if (writes_to_ties(comparison.tensors)) return std::nullopt;
  const Unredirected guard;
  std::size_t net = 0;
  if (scope.mechanism == Mechanism::kCall) {
    net = std::find(net_.nets().begin(), net_.nets().end(), scope.called) - net_.nets().begin();
  }
  comparison.expected = outcome_of([&] {
    return scope.mechanism == Mechanism::kCall ? twin_.nets()[net]->forward(net_.x()) : twin_.root().forward(net_.x());
  });
  return comparison;
}

void FuzzRun::compare(const Comparison& expected, const Outcome& got, bool with_gradients) {
  const Unredirected guard;
  const Tensor& result = expected.expected.result;
  ASSERT_EQ(got.result.defined(), result.defined()) << "net: " << got.error << "\ntwin: " << expected.expected.error;
  if (!result.defined()) {
    ++counts_.same_failures;
    return;
  }
  ++counts_.same_results;
  const bool in_double = result.scalar_type() == torch::kDouble && net_.x().scalar_type() == torch::kDouble;
  const double tolerance = in_double ? 1e-12 : 1e-5;
  ASSERT_EQ(got.result.scalar_type(), result.scalar_type());
  ASSERT_TRUE(got.result.allclose(result, tolerance, tolerance)) << got.result << result;
  ASSERT_EQ(got.result.requires_grad(), result.requires_grad());
  if (with_gradients && result.requires_grad()) compare_gradients(expected, got.result);
}

/// The gradient of a tensor is the sum of those of the handles that hold it.
void FuzzRun::compare_gradients(const Comparison& expected, const Tensor& got) {
  std::map<const at::TensorImpl*, std::size_t> numbers;
  std::vector<Tensor> inputs, twin_inputs;
  std::vector<std::size_t> input_of;
  for (std::size_t i = 0; i < expected.tensors.size(); ++i) {
    const Tensor& tensor = expected.tensors[i];
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    const auto [number, is_new] = numbers.emplace(tensor.unsafeGetTensorImpl(), inputs.size());
    if (is_new) inputs.push_back(tensor);
    twin_inputs.push_back(expected.twin_values[i]);
    input_of.push_back(number->second);
  }
  const auto gradients_of = [](const Tensor& result, const std::vector<Tensor>& of) {
    return torch::autograd::grad({result.square().sum()}, of, {}, {}, /*create_graph=*/false, /*allow_unused=*/true);
  };
  torch::autograd::variable_list twin_gradients;
  try {
    twin_gradients = gradients_of(expected.expected.result, twin_inputs);
  } catch (const c10::Error&) {
    return;  // LibTorch has none for a normalisation with a bias and no weight
  }
  const auto gradients = gradients_of(got, inputs);
  std::vector<Tensor> sums(inputs.size());
  for (std::size_t i = 0; i < twin_gradients.size(); ++i) {
    Tensor& sum = sums[input_of[i]];
    if (twin_gradients[i].defined()) sum = sum.defined() ? sum + twin_gradients[i] : twin_gradients[i];
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ++counts_.gradients;
    ASSERT_EQ(gradients[i].defined(), sums[i].defined());
    if (!sums[i].defined()) continue;
    const bool in_double = sums[i].scalar_type() == torch::kDouble && net_.x().scalar_type() == torch::kDouble;
    const double tolerance = in_double ? 1e-10 : 1e-3;
    ASSERT_TRUE(gradients[i].allclose(sums[i], tolerance, tolerance)) << gradients[i] << sums[i];
  }
}

/// The members that shall hold what their entries hold when the scope has ended, each with its entry.
std::map<HandleId, HandleId> FuzzRun::resets_of(const Scope& scope) const {
  std::map<HandleId, HandleId> resets;
  if (scope.mechanism != Mechanism::kCall) return resets;
  for (const Entry& entry : scope.view.entries) {
    for (const Cell* const cell : entry.cells) resets.emplace(id_of(net_, *cell), id_of(entry));
  }
  return resets;
}

/// What Graft wrote is as before; the rest is as the body left it, but for what a call resets.
void FuzzRun::check_after(const Scope& scope, const State& inside, const State& end) {
  const State now(net_);
  const std::map<HandleId, HandleId> resets = resets_of(scope);
  const bool is_layout_same = layout_changes_ == scope.layout_changes;  // else nothing may be reset
  bool is_quiet = touched_.empty() && moved_.empty();
  for (const auto& [id, before] : scope.before.handles) {
    const bool is_written = scope.written.contains(id);
    const auto at_end = end.handles.find(id);
    const auto at_start = inside.handles.find(id);
    const auto found = now.handles.find(id);
    if (!is_written && at_end == end.handles.end()) continue;
    ASSERT_TRUE(found != now.handles.end()) << std::get<2>(id) << " is gone";
    const Fact& fact = found->second;
    const auto reset = resets.find(id);
    const bool may_reset = !is_written && reset != resets.end();
    const bool is_reset = may_reset && (is_layout_same || !fact.tensor.is_same(at_end->second.tensor));
    const Fact& right = is_written ? before : is_reset ? now.handles.at(reset->second) : at_end->second;
    ASSERT_TRUE(fact.tensor.is_same(right.tensor)) << std::get<2>(id) << " holds another tensor";
    const bool same_version = !has_moved(fact.tensor);
    const bool was_touched = is_touched(fact.tensor) && !scope.contents.contains(fact.tensor.unsafeGetTensorImpl());
    const Fact* const known = scope.before.find(fact.tensor);
    const bool is_right = was_touched || (known != nullptr && fact.is_like(*known, same_version)) ||
                          (!is_written && fact.is_like(right, same_version));
    ASSERT_TRUE(is_right) << std::get<2>(id) << " has changed from " << before << " to " << fact;
    is_quiet &= is_written || (at_start != inside.handles.end() && at_start->second.tensor.is_same(fact.tensor));
  }
  for (const auto& [registry, names] : scope.before.names) {
    std::vector<std::string> expected = names;
    for (const std::string& name : end.names.at(registry)) {
      if (std::find(names.begin(), names.end(), name) == names.end()) expected.push_back(name);
    }
    ASSERT_EQ(now.names.at(registry), expected);
    is_quiet &= names == expected;
  }
  const Snapshot after(net_.root());
  EXPECT_EQ(scope.snapshot.thread_changes_to(after), "");
  EXPECT_EQ(is_quiet ? scope.snapshot.changes_to(after) : "", "");
}

template <typename Body>
bool FuzzRun::throws(const Body& body) {
  try {
    body();
  } catch (const BodyError&) {
    return true;
  }
  return false;
}

/// Does some things to the module. What only a guard or a call could undo is left out within an installation for good.
void FuzzRun::body(const Scope& scope) {
  const std::string indent(2 * scope.depth + 2, ' ');
  for (int64_t count = random_.below(4); count > 0 && !::testing::Test::HasFailure(); --count) {
    const int64_t action = random_.below(100);
    if (action < 40) {
      if (scope.depth < kDeepest) this->scope(scope.depth + 1);
    } else if (action < 52) {
      log_ << indent << "throw\n";
      throw BodyError();
    } else if (action < 65) {
      write();
    } else if (action < 75) {
      torch::nn::Module& module = *random_.pick(net_.modules());
      const std::string name = "extra" + std::to_string(extras_++);
      log_ << indent << "register " << name << " in " << module.name() << '\n';
      ++layout_changes_;
      if (random_.chance(50)) {
        module.register_parameter(name, torch::rand({2}));
      } else {
        module.register_buffer(name, torch::rand({2}));
      }
    } else if (action < 85) {
      if (for_good_ == 0) assign();
    } else if (action < 92) {
      if (scope.mechanism != Mechanism::kForGood) erase(scope);
    } else if (for_good_ == 0) {
      log_ << indent << "cast\n";
      for (const auto& [id, fact] : State(net_).handles) touch(fact.tensor);
      net_.root().to(random_.chance(50) ? torch::kDouble : torch::kFloat);
    }
  }
}

/// Writes to a tensor that forward reads.
void FuzzRun::write() {
  if (net_.cells().empty()) return;
  const Unredirected guard;
  const torch::NoGradGuard no_grad;
  const Tensor* const handle = random_.pick(net_.cells()).handle();
  if (handle == nullptr || !handle->defined()) return;
  log_ << "write in place\n";
  touch(*handle);
  handle->add_(1);
}

/// Makes a handle hold a new tensor, or one that another member holds.
void FuzzRun::assign() {
  if (net_.cells().empty()) return;
  const std::vector<Cell>& cells = net_.cells();
  const Cell& cell = random_.pick(cells);
  Tensor* const target = cell.handle();
  const Cell& other = random_.pick(cells);
  const Tensor* const source = other.handle();
  if (target == nullptr || !target->defined()) return;
  const bool fits = source != nullptr && source->defined() && other.kind == Cell::Kind::kMember &&
                    source->sizes() == target->sizes() && source->scalar_type() == target->scalar_type();
  // A handle that nobody knows may only be tied before the first call, which finds it.
  const bool is_tied = fits && cell.kind == Cell::Kind::kMember && random_.chance(50);
  log_ << "assign " << (is_tied ? "a tie" : "a new tensor") << '\n';
  has_ties_ |= is_tied;
  *target = is_tied ? *source : torch::ones(target->sizes(), target->options());
}

/// Unregisters something that the scope will put back.
void FuzzRun::erase(const Scope& scope) {
  std::vector<HandleId> entries;
  for (const HandleId& id : scope.written) {
    const auto& [module, is_buffer, name] = id;
    if (module != nullptr && registry_of({module, is_buffer}).contains(name)) entries.push_back(id);
  }
  if (entries.empty()) return;
  const auto& [module, is_buffer, name] = random_.pick(entries);
  log_ << "erase " << name << " of " << module->name() << '\n';
  ++layout_changes_;
  registry_of({module, is_buffer}).erase(name);
}

TEST(SwapFuzzTest, DoesWhatIsPredictedAndPutsEverythingBack) {
  torch::set_num_threads(1);
  at::globalContext().setUserEnabledMkldnn(false);  // whose LSTM reads weights of any dtype as its own
  const int64_t first = number_from("GRAFT_FUZZ_SEED", 0);
  const int64_t runs = number_from("GRAFT_FUZZ_RUNS", 2000);
  Counts counts;
  for (int64_t seed = first; seed < first + runs; ++seed) {
    FuzzRun run(seed, counts);
    try {
      run.run();
    } catch (const c10::Error& error) {
      ADD_FAILURE() << error.what_without_backtrace();
    }
    ASSERT_FALSE(HasFailure()) << "GRAFT_FUZZ_SEED=" << seed << "\n" << run.log();
  }
  std::cout << "installed " << counts.installed << ", unknown names " << counts.index_refusals << ", misfits "
            << counts.value_refusals << ", equal results " << counts.same_results << ", equal failures "
            << counts.same_failures << ", equal gradients " << counts.gradients << ", thrown " << counts.thrown << '\n';
  if (runs < 1000) return;
  for (const int64_t count : {counts.installed, counts.index_refusals, counts.value_refusals, counts.same_results,
                              counts.same_failures, counts.gradients, counts.thrown}) {
    EXPECT_GT(count, runs / 40);
  }
}

}  // namespace
}  // namespace graft::testing
