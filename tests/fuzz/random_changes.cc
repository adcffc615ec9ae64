#include "tests/fuzz/random_changes.h"

#include <torch/torch.h>

#include <ostream>
#include <string>
#include <vector>

namespace graft::testing {

void RandomChanges::write() {
  if (net_.cells().empty()) return;
  const Unredirected guard;
  const torch::NoGradGuard no_grad;
  const Tensor* const handle = random_.pick(net_.cells()).handle();
  if (handle == nullptr || !handle->defined()) return;
  log_ << "write in place\n";
  changes_.note_write(*handle);
  handle->add_(1);
}

void RandomChanges::assign() {
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

void RandomChanges::add() {
  torch::nn::Module& module = *random_.pick(net_.modules());
  const std::string name = "extra" + std::to_string(extras_++);
  log_ << "register " << name << " in " << module.name() << '\n';
  changes_.note_layout();
  if (random_.chance(50)) {
    module.register_parameter(name, torch::rand({2}));
  } else {
    module.register_buffer(name, torch::rand({2}));
  }
}

void RandomChanges::erase(const std::set<HandleId>& written) {
  std::vector<HandleId> entries;
  for (torch::nn::Module* const module : net_.modules()) {  // not in the order of addresses, which differs by run
    for (const bool is_buffer : {false, true}) {
      for (const auto& item : registry_of({module, is_buffer}).items()) {
        const HandleId id = {module, is_buffer, item.key()};
        if (written.contains(id)) entries.push_back(id);
      }
    }
  }
  if (entries.empty()) return;
  const auto& [module, is_buffer, name] = random_.pick(entries);
  log_ << "erase " << name << " of " << module->name() << '\n';
  changes_.note_layout();
  registry_of({module, is_buffer}).erase(name);
}

void RandomChanges::cast() {
  log_ << "cast\n";
  for (const auto& [id, fact] : NetState(net_).handles) changes_.note_write(fact.tensor);
  net_.root().to(random_.chance(50) ? torch::kDouble : torch::kFloat);
}

}  // namespace graft::testing
