#include "functional/internal/module_layout.h"

namespace graft::internal {

using torch::nn::Module;

namespace {

bool is_long(const std::string& key) {
  static const std::size_t kLongestInPlace = std::string().capacity();
  return key.size() > kLongestInPlace;
}

}  // namespace

void ModuleLayout::add(Module& module, const std::weak_ptr<Module>& owner, bool has_handles) {
  places_.push_back({.module = &module,
                     .parameters = Items(parameter_registry(module)),
                     .buffers = Items(buffer_registry(module)),
                     .children = Items(child_registry(module))});
  if (has_handles || !places_.back().parameters.empty() || !places_.back().buffers.empty()) {
    written_.push_back({.place = static_cast<uint32_t>(places_.size() - 1),
                        .first_name = static_cast<uint32_t>(entry_names_.size()),
                        .is_owned = !owner.expired(),
                        .owner = owner});
  }
  add_names(parameter_registry(module));
  add_names(buffer_registry(module));
  for (const auto& item : child_registry(module)) {
    children_.push_back({Name(item.key()), item.value().get(), item.value()});
    if (is_long(item.key())) long_child_names_.push_back({&item.key(), item.key()});
  }
}

void ModuleLayout::add_names(const TensorRegistry& registry) {
  for (const auto& item : registry) {
    entry_names_.emplace_back(item.key());
    if (is_long(item.key())) long_entry_names_.push_back({&item.key(), item.key()});
  }
}

bool ModuleLayout::is_unchanged() const {
  const Name* name = entry_names_.data();
  const Child* child = children_.data();
  for (const Place& place : places_) {
    if (Items(parameter_registry(*place.module)) != place.parameters) return false;
    if (Items(buffer_registry(*place.module)) != place.buffers) return false;
    if (Items(child_registry(*place.module)) != place.children) return false;
    if (!have_names(place.parameters, name) || !have_names(place.buffers, name)) return false;
    if (!are_children(place.children, child)) return false;
  }
  return are_same(long_entry_names_) && are_same(long_child_names_);
}

bool ModuleLayout::still_holds() const {
  for (const Written& written : written_) {
    const Place& place = places_[written.place];
    if (written.is_owned && written.owner.expired()) return false;
    if (!place.parameters.empty() && Items(parameter_registry(*place.module)) != place.parameters) return false;
    if (!place.buffers.empty() && Items(buffer_registry(*place.module)) != place.buffers) return false;
    const Name* name = entry_names_.data() + written.first_name;
    if (!have_names(place.parameters, name) || !have_names(place.buffers, name)) return false;
  }
  return are_same(long_entry_names_);
}

inline bool ModuleLayout::Name::is_of(const std::string& key) const {
  static_assert(sizeof(words) == 4 * sizeof(uint64_t));
  const auto has = [&](std::size_t i) {
    uint64_t word;
    std::memcpy(&word, reinterpret_cast<const char*>(&key) + i * sizeof(word), sizeof(word));
    return words[i] == word;
  };
  return has(0) && has(1) && has(2) && has(3);
}

/// Compares the names of some items, and moves on to the next names.
inline bool ModuleLayout::have_names(const Items<TensorRegistry>& items, const Name*& name) {
  for (const auto* item = items.begin; item != items.end; ++item, ++name) {
    if (!name->is_of(item->key())) return false;
  }
  return true;
}

/// Compares some items with what is known of them, and moves on to the next children.
inline bool ModuleLayout::are_children(const Items<ChildRegistry>& items, const Child*& known) {
  for (const auto* item = items.begin; item != items.end; ++item, ++known) {
    const std::shared_ptr<Module>& child = item->value();
    if (child.get() != known->module || !known->name.is_of(item->key())) return false;
    if (child.owner_before(known->owner) || known->owner.owner_before(child)) return false;
  }
  return true;
}

bool ModuleLayout::are_same(const std::vector<LongName>& names) {
  for (const LongName& name : names) {
    if (*name.key != name.text) return false;
  }
  return true;
}

}  // namespace graft::internal
