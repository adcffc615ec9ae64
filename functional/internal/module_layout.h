// ModuleLayout: where a module tree keeps its registries, compared on every swap.
//
// NOTE: [How a layout is compared]
// Before a swap, from the root down, every module must have the arrays of entries and the children that it had, under
// the names that they had. A child is followed only after its parent has been compared, so a module that is gone is
// never read. The layout holds a weak pointer to each child, so that no other module can have its control block: one
// with the same address and control block is the same child, and of the same class.
//
// After a swap it is enough that the modules that were written to are alive, wherever they are, and have their entries.
//
// A swap compares twice and does little else, so what is compared lies together, in the order in which it is read.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "functional/internal/module_registry.h"

namespace graft::internal {

class ModuleLayout {
 public:
  /// Adds a module; a parent comes before its children. `owner` is empty for a root that no shared_ptr holds.
  /// `has_handles`: a swap may write to its data members.
  void add(torch::nn::Module& module, const std::weak_ptr<torch::nn::Module>& owner, bool has_handles);

  /// Is everything as it was?
  bool is_unchanged() const;

  /// Are all entries and the modules with handles where they were? More may have come to registries that were empty.
  bool still_holds() const;

 private:
  /// The items of one registry.
  template <typename Registry>
  struct Items {
    using Item = typename Registry::Item;
    explicit Items(const Registry& registry)
        : begin(std::to_address(registry.items().begin())), end(std::to_address(registry.items().end())) {}
    bool operator==(const Items&) const = default;
    bool empty() const { return begin == end; }
    std::size_t size() const { return end - begin; }

    const Item* begin;
    const Item* end;
  };

  struct Place {
    torch::nn::Module* module;
    Items<TensorRegistry> parameters;
    Items<TensorRegistry> buffers;
    Items<ChildRegistry> children;
  };

  /// A place with entries or handles.
  struct Written {
    uint32_t place;
    uint32_t first_name;
    bool is_owned;  ///< false for a root that no shared_ptr holds
    std::weak_ptr<torch::nn::Module> owner;
  };

  /// A std::string, word by word. A short one holds its text, so equal words are equal short names.
  struct Name {
    explicit Name(const std::string& key) { std::memcpy(words, &key, sizeof(words)); }
    bool is_of(const std::string& key) const;
    uint64_t words[sizeof(std::string) / sizeof(uint64_t)];
  };

  struct LongName {
    const std::string* key;
    std::string text;
  };

  struct Child {
    Name name;
    torch::nn::Module* module;
    std::weak_ptr<torch::nn::Module> owner;
  };

  void add_names(const TensorRegistry& registry);
  static bool have_names(const Items<TensorRegistry>& items, const Name*& name);
  static bool are_children(const Items<ChildRegistry>& items, const Child*& known);
  static bool are_same(const std::vector<LongName>& names);

  std::vector<Place> places_;
  std::vector<Written> written_;
  std::vector<Name> entry_names_;  ///< in the order of the places, first of parameters, then of buffers
  std::vector<Child> children_;    ///< in the order of the places
  std::vector<LongName> long_entry_names_;
  std::vector<LongName> long_child_names_;  ///< apart, because after a swap the arrays of children may be gone
};

/// Does it point to something that is no more? (An empty one does not.)
inline bool is_gone(const std::weak_ptr<torch::nn::Module>& owner) {
  const std::weak_ptr<torch::nn::Module> none;
  return owner.expired() && (owner.owner_before(none) || none.owner_before(owner));
}

}  // namespace graft::internal
