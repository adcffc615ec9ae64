#include "tests/fuzz/swap_model.h"

#include <torch/nn/modules/container/parameterdict.h>
#include <torch/nn/modules/container/parameterlist.h>

#include <algorithm>
#include <functional>
#include <set>

#include "functional/internal/module_registry.h"

namespace graft::testing {
namespace {

bool hold_one(const Tensor& left, const Tensor& right) {
  return left.defined() && right.defined() && left.unsafeGetTensorImpl() == right.unsafeGetTensorImpl();
}

bool is_name_of(const std::string& member, const std::string& entry) {
  return member == entry || member == entry + "_";
}

bool reads_registry(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::ParameterListImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::ParameterDictImpl*>(&module) != nullptr;
}

/// An entry and the leaf that is meant for it.
struct Use {
  std::string path;
  const Entry* entry;
  Tensor leaf;
};

class Rules {
 public:
  Rules(Mechanism mechanism, const ToModuleOptions& options)
      : mechanism_(mechanism),
        in_place_(options.inplace),
        keeps_flags_(mechanism != Mechanism::kCall && options.preserve_module_state && !options.inplace),
        checks_shapes_(mechanism == Mechanism::kCall || options.check_shapes) {}

  /// Does the tensor stay in its handles and get other values?
  bool changes_content(const Entry& entry) const {
    return in_place_ || (mechanism_ == Mechanism::kForGood && entry.way == Way::kUnknown);
  }

  bool makes_alias(const Entry& entry, const Tensor& leaf) const {
    return keeps_flags_ && !entry.is_buffer && !leaf.requires_grad() && entry.handle->defined() &&
           entry.handle->requires_grad();
  }

  bool fits(const Entry& entry, const Tensor& leaf) const {
    const Tensor& held = *entry.handle;
    const bool same_shape = !held.defined() || held.sizes() == leaf.sizes();
    const bool same_type = held.defined() && held.scalar_type() == leaf.scalar_type();
    if (entry.way == Way::kDetached) return false;
    if (entry.way == Way::kUnknown && !in_place_) {
      if (mechanism_ == Mechanism::kGuard || !held.defined() || !same_shape || !same_type) return false;
      const bool changes_flag = leaf.requires_grad() || (!keeps_flags_ && held.requires_grad());
      if (mechanism_ == Mechanism::kForGood && changes_flag) return false;
    }
    if (in_place_ && !same_type) return false;
    if (checks_shapes_ && !same_shape) return false;
    return !makes_alias(entry, leaf) || leaf.is_floating_point();
  }

  /// Must two entries of one tensor get one leaf?
  bool is_of_tensor(const Entry& entry) const {
    return entry.handle->defined() && (mechanism_ == Mechanism::kCall || changes_content(entry));
  }

 private:
  Mechanism mechanism_;
  bool in_place_, keeps_flags_, checks_shapes_;
};

bool contradict(const ToModuleOptions& options) {
  return (options.inplace && (options.use_state_dict || !options.check_shapes)) ||
         (options.non_blocking && !options.inplace) || (options.swap_dest != nullptr && !options.return_swap);
}

/// The entries that lack a leaf, and those that must not have one.
std::vector<std::string> incomplete(const ModuleView& view, const std::vector<Use>& uses) {
  std::set<const Entry*> used;
  for (const Use& use : uses) used.insert(use.entry);
  std::vector<std::string> names;
  std::set<const Entry*> seen;
  for (const auto& [path, index] : view.names) {
    const Entry& entry = view.entries[index];
    if (used.contains(&entry) != entry.handle->defined() && seen.insert(&entry).second) names.push_back(path);
  }
  return names;
}

std::vector<std::string> misfits(const std::vector<Use>& uses, const Rules& rules) {
  std::vector<std::string> names;
  for (const Use& use : uses) {
    if (!rules.fits(*use.entry, use.leaf)) names.push_back(use.path);
  }
  return names;
}

/// Names that stand for one thing and have different leaves.
std::vector<std::string> conflicts(const std::vector<Use>& uses, const Rules& rules) {
  std::set<std::string> names;
  for (const Use& one : uses) {
    for (const Use& other : uses) {
      const bool is_one =
          one.entry == other.entry || (rules.is_of_tensor(*one.entry) && rules.is_of_tensor(*other.entry) &&
                                       hold_one(*one.entry->handle, *other.entry->handle));
      if (is_one && !hold_one(one.leaf, other.leaf)) names.insert(one.path);
    }
  }
  return {names.begin(), names.end()};
}

/// Entries without a leaf whose tensor is also that of an entry with one.
std::vector<Use> tied_uses(const ModuleView& view, const std::vector<Use>& uses) {
  std::vector<Use> tied;
  for (const Entry& entry : view.entries) {
    const auto has_leaf = [&](const Use& use) { return use.entry == &entry; };
    const auto is_tied = [&](const Use& use) { return hold_one(*use.entry->handle, *entry.handle); };
    if (std::any_of(uses.begin(), uses.end(), has_leaf)) continue;
    const auto found = std::find_if(uses.begin(), uses.end(), is_tied);
    if (found != uses.end()) tied.push_back({found->path, &entry, found->leaf});
  }
  return tied;
}

/// Marks leaves that are tensors of the module which have other leaves.
void keep_apart(const std::vector<Use>& uses, Prediction& expected) {
  for (NewHandle& installed : expected.handles) {
    const auto is_exchanged = [&](const Use& use) {
      return hold_one(*use.entry->handle, installed.leaf) && !hold_one(use.leaf, installed.leaf);
    };
    if (std::any_of(uses.begin(), uses.end(), is_exchanged)) installed.how = Install::kEither;
  }
}

/// Handles that nobody knows, of what is known, are reached operator by operator.
void reach_hidden_handles(const std::vector<Use>& uses, Prediction& expected) {
  for (const Use& use : uses) {
    const Tensor& held = *use.entry->handle;
    if (use.entry->way == Way::kUnknown || !held.defined()) continue;
    const bool can_stand_for = held.sizes() == use.leaf.sizes() && held.scalar_type() == use.leaf.scalar_type();
    if (can_stand_for) expected.redirects.push_back({held, use.leaf});
  }
}

}  // namespace

bool ModuleView::has_hidden_handles(const std::vector<Cell>& cells) const {
  return std::any_of(cells.begin(), cells.end(), [this](const Cell& cell) {
    if (cell.kind != Cell::Kind::kPrivate || cell.handle() == nullptr) return false;
    return std::any_of(entries.begin(), entries.end(), [&](const Entry& entry) {
      return entry.way != Way::kUnknown && hold_one(*entry.handle, *cell.handle());
    });
  });
}

ModuleView::ModuleView(torch::nn::Module& module, const std::vector<Cell>& cells) {
  add(module, "");
  give_cells_to_entries(cells);
}

const Entry* ModuleView::find(const std::string& path) const {
  for (const auto& [name, index] : names) {
    if (name == path) return &entries[index];
  }
  return nullptr;
}

void ModuleView::add(torch::nn::Module& module, const std::string& path) {
  if (first_entries_.emplace(&module, entries.size()).second) {
    modules_.push_back(&module);
    for (const bool buffers : {false, true}) {
      for (auto& item : buffers ? internal::buffer_registry(module) : internal::parameter_registry(module)) {
        entries.push_back({&module, item.key(), buffers, &item.value(), {}, Way::kUnknown});
      }
    }
  }
  for (std::size_t i = first_entries_[&module]; i < entries.size() && entries[i].module == &module; ++i) {
    names.emplace_back(path + entries[i].name, i);
  }
  for (auto& child : internal::child_registry(module)) add(*child.value(), path + child.key() + ".");
}

void ModuleView::give_cells_to_entries(const std::vector<Cell>& cells) {
  std::vector<std::optional<Way>> noted(entries.size());
  for (torch::nn::Module* const module : modules_) {
    const auto own_of = [&](const Cell& cell) {
      return std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) {
        return entry.module == module && is_name_of(cell.member, entry.name);
      });
    };
    std::vector<std::reference_wrapper<const Cell>> members;
    for (const Cell& cell : cells) {
      if (cell.module == module && cell.kind == Cell::Kind::kMember) members.emplace_back(cell);
    }
    std::stable_partition(members.begin(), members.end(),
                          [&](const Cell& cell) { return own_of(cell) != entries.end(); });
    for (const Cell& cell : members) {
      const Tensor& held = *cell.handle();
      const auto holds_it = [&](const Entry& entry) { return hold_one(*entry.handle, held); };
      const auto own = own_of(cell);
      const bool has_own = own != entries.end();
      if (has_own && (holds_it(*own) || (!held.defined() && !own->handle->defined()))) {
        own->cells.push_back(&cell);
        continue;
      }
      if (!has_own) {
        const auto is_free = [&](const Entry& entry) {
          return entry.module == module && holds_it(entry) && entry.cells.empty();
        };
        const auto is_near = [&](const Entry& entry) { return entry.module == module && holds_it(entry); };
        auto nearest = std::find_if(entries.begin(), entries.end(), is_free);
        if (nearest == entries.end()) nearest = std::find_if(entries.begin(), entries.end(), is_near);
        if (nearest != entries.end()) {
          nearest->cells.push_back(&cell);
          continue;
        }
      }
      const auto holder = std::find_if(entries.begin(), entries.end(), holds_it);
      if (holder != entries.end()) holder->cells.push_back(&cell);
      if (has_own && held.defined()) {
        noted[own - entries.begin()] = holder != entries.end() ? Way::kRegistry : Way::kDetached;
      }
    }
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Entry& entry = entries[i];
    if (!entry.cells.empty()) {
      entry.way = Way::kMembers;
    } else if (reads_registry(*entry.module)) {
      entry.way = Way::kRegistry;
    } else {
      entry.way = noted[i].value_or(Way::kUnknown);
    }
  }
}

Prediction predict(const ModuleView& view, const TensorDict& tree, Mechanism mechanism,
                   const ToModuleOptions& options) {
  Prediction expected;
  const auto refuse = [&](Refusal refusal, std::vector<std::string> names) {
    if (names.empty() || expected.refusal != Refusal::kNone) return;
    expected.refusal = refusal;
    expected.named = std::move(names);
  };
  if (mechanism != Mechanism::kCall && contradict(options)) refuse(Refusal::kValue, {"to_module"});

  std::vector<Use> uses;
  std::vector<std::string> unknown;
  for (const auto& [path, leaf] : tree.leaves()) {
    if (const Entry* const entry = view.find(path)) {
      uses.push_back({path, entry, leaf});
    } else {
      unknown.push_back(path);
    }
  }
  const Rules rules(mechanism, options);
  const bool ties = mechanism == Mechanism::kCall;
  refuse(Refusal::kIndex, unknown);
  if (!ties && options.strict) refuse(Refusal::kValue, incomplete(view, uses));
  refuse(Refusal::kValue, misfits(uses, rules));
  refuse(Refusal::kValue, conflicts(uses, rules));
  if (ties) {
    const std::vector<Use> tied = tied_uses(view, uses);
    refuse(Refusal::kValue, misfits(tied, rules));
    uses.insert(uses.end(), tied.begin(), tied.end());
  }
  if (expected.refusal != Refusal::kNone) return expected;

  for (const auto& [path, entry, leaf] : uses) {
    expected.written.push_back(entry);
    if (rules.changes_content(*entry)) {
      expected.contents.push_back({*entry->handle, leaf});
      continue;
    }
    const Install how = rules.makes_alias(*entry, leaf) ? Install::kAliasWithGrad : Install::kLeaf;
    expected.handles.push_back({entry->handle, leaf, how});
    for (const Cell* const cell : entry->cells) expected.handles.push_back({cell->handle(), leaf, how});
    if (entry->way == Way::kUnknown) expected.redirects.push_back({*entry->handle, leaf});
  }
  if (mechanism == Mechanism::kCall) {
    keep_apart(uses, expected);
    reach_hidden_handles(uses, expected);
  }
  return expected;
}

}  // namespace graft::testing
