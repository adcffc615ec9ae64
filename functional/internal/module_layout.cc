#include "functional/internal/module_layout.h"

#include <cstring>

namespace graft::internal {

using torch::nn::Module;

void ModuleLayout::add(Module& module, const std::weak_ptr<Module>& owner, bool has_handles) {
  places_.push_back({.module = &module,
                     .parameters = Items(parameter_registry(module)),
                     .buffers = Items(buffer_registry(module)),
                     .children = Items(child_registry(module)),
                     .first_name = static_cast<uint32_t>(names_.size()),
                     .first_child = static_cast<uint32_t>(children_.size()),
                     .owner = owner});
  const Place& place = places_.back();
  if (has_handles || !place.parameters.empty() || !place.buffers.empty()) {
    written_.push_back(static_cast<uint32_t>(places_.size() - 1));
  }
  add_names(parameter_registry(module), long_entry_names_);
  add_names(buffer_registry(module), long_entry_names_);
  add_names(child_registry(module), long_child_names_);
  for (const auto& item : child_registry(module)) children_.push_back({item.value().get(), item.value()});
}

template <typename Registry>
void ModuleLayout::add_names(const Registry& registry, std::vector<LongName>& long_names) {
  static const std::size_t kLongestInPlace = std::string().capacity();
  for (const auto& item : registry) {
    std::memcpy(names_.emplace_back().bytes, &item.key(), sizeof(NameBytes));
    if (item.key().size() > kLongestInPlace) long_names.push_back({&item.key(), item.key()});
  }
}

bool ModuleLayout::is_unchanged() const {
  for (const Place& place : places_) {
    if (Items(parameter_registry(*place.module)) != place.parameters) return false;
    if (Items(buffer_registry(*place.module)) != place.buffers) return false;
    if (Items(child_registry(*place.module)) != place.children) return false;
    if (!has_same_names(place) || !has_same_children(place)) return false;
  }
  return are_same(long_entry_names_) && are_same(long_child_names_);
}

bool ModuleLayout::still_holds() const {
  for (const uint32_t index : written_) {
    const Place& place = places_[index];
    if (is_gone(place.owner)) return false;
    if (!place.parameters.empty() && Items(parameter_registry(*place.module)) != place.parameters) return false;
    if (!place.buffers.empty() && Items(buffer_registry(*place.module)) != place.buffers) return false;
    if (!has_same_names(place)) return false;
  }
  return are_same(long_entry_names_);
}

namespace {

/// Compares the names of some items, and moves on to the next names.
template <typename Item, typename Name>
bool have_names(const Item* begin, const Item* end, const Name*& names) {
  for (const Item* item = begin; item != end; ++item, ++names) {
    if (std::memcmp(&item->key(), names->bytes, sizeof(names->bytes)) != 0) return false;
  }
  return true;
}

}  // namespace

inline bool ModuleLayout::has_same_names(const Place& place) const {
  const NameBytes* names = names_.data() + place.first_name;
  return have_names(place.parameters.begin, place.parameters.end, names) &&
         have_names(place.buffers.begin, place.buffers.end, names);
}

inline bool ModuleLayout::has_same_children(const Place& place) const {
  const NameBytes* names = names_.data() + place.first_name + place.parameters.size() + place.buffers.size();
  if (!have_names(place.children.begin, place.children.end, names)) return false;
  const Child* known = children_.data() + place.first_child;
  for (const auto* item = place.children.begin; item != place.children.end; ++item, ++known) {
    const std::shared_ptr<Module>& child = item->value();
    if (child.get() != known->module) return false;
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
