#include "tests/fuzz/random_swap.h"

#include <torch/torch.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace graft::testing {
namespace {

class SwapDrawer {
 public:
  SwapDrawer(Random& random, RandomNet& net, const SwapPlace& place) : random_(random), net_(net), place_(place) {}

  RandomSwap draw();

 private:
  ToModuleOptions draw_options(bool allows_load);
  TensorDict draw_tree(const ModuleView& view, bool repeats, bool own_tensors);
  Tensor draw_leaf(const Entry& entry, const ModuleView& view, bool own_tensors);
  bool can_be_loaded(const ModuleView& view) const;

  Random& random_;
  RandomNet& net_;
  const SwapPlace place_;
};

ToModuleOptions SwapDrawer::draw_options(bool allows_load) {
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

Tensor SwapDrawer::draw_leaf(const Entry& entry, const ModuleView& view, bool own_tensors) {
  const Tensor& held = *entry.handle;
  std::vector<int64_t> shape = held.defined() ? held.sizes().vec() : std::vector<int64_t>{3};
  at::ScalarType type = held.defined() ? held.scalar_type() : net_.x().scalar_type();
  const auto is_other = [&](int64_t percent) { return random_.chance(percent); };
  if (own_tensors && !place_.has_ties && is_other(4)) {
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

TensorDict SwapDrawer::draw_tree(const ModuleView& view, bool repeats, bool own_tensors) {
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
    const bool is_repeated = repeats && !leaves.empty() && !place_.has_ties && random_.chance(4);
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

/// A load goes through every name of the module, one after the other: only without ties is it clear what comes of it.
bool SwapDrawer::can_be_loaded(const ModuleView& view) const {
  std::set<const at::TensorImpl*> tensors;
  std::size_t count = 0;
  bool is_detached = false;
  for (const auto& [path, index] : view.names) {
    is_detached |= view.entries[index].way == Way::kDetached;
    if (!view.entries[index].handle->defined()) continue;
    tensors.insert(view.entries[index].handle->unsafeGetTensorImpl());
    ++count;
  }
  return !place_.has_ties && !is_detached && tensors.size() == count;
}

/// Are there two tensors over one storage among those that leaves are meant for? A copy to both is not to be predicted.
bool have_overlaps(const ModuleView& view, const TensorDict& tree) {
  std::map<const c10::StorageImpl*, const at::TensorImpl*> holder_of;
  for (const auto& [path, leaf] : tree.leaves()) {
    const Entry* const entry = view.find(path);
    if (entry == nullptr || !entry->handle->defined()) continue;
    const at::TensorImpl* const held = entry->handle->unsafeGetTensorImpl();
    if (holder_of.emplace(held->storage().unsafeGetStorageImpl(), held).first->second != held) return true;
  }
  return false;
}

RandomSwap SwapDrawer::draw() {
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
  const bool own_tensors = !good && place_.depth == kDeepest && !place_.is_in_call;
  const TensorDict tree = draw_tree(view, /*repeats=*/good || place_.depth == kDeepest, own_tensors);
  const bool allows_load = mechanism != Mechanism::kCall && place_.depth == 0 && can_be_loaded(view);
  ToModuleOptions options = draw_options(allows_load);
  const bool has_swap_dest = random_.chance(15) && mechanism != Mechanism::kCall;
  if (mechanism == Mechanism::kCall) options = {};
  if (have_overlaps(view, tree)) options.inplace = options.non_blocking = false;
  return {place_.depth, mechanism, target, called, options, has_swap_dest, tree, std::move(view)};
}

}  // namespace

RandomSwap draw_swap(Random& random, RandomNet& net, const SwapPlace& place) {
  return SwapDrawer(random, net, place).draw();
}

}  // namespace graft::testing
