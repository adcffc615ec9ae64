// Loads a tree that another program wrote and writes it again: copy_tree KIND FROM TO, where KIND is memmap, state_dict
// or archive.
#include <c10/util/Exception.h>

#include <iostream>
#include <string>

#include "tensordict/archive.h"
#include "tensordict/memmap.h"
#include "tensordict/state_dict_file.h"

namespace {

void copy_tree(const std::string& kind, const std::string& from, const std::string& to) {
  if (kind == "memmap") {
    graft::memmap(graft::load_memmap(from, {.read_only = true}), to);
  } else if (kind == "state_dict") {
    graft::save_state_dict(graft::load_state_dict(from), to);
  } else {
    graft::save(graft::load_state_dict(from), to);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::cerr << "usage: copy_tree memmap|state_dict|archive FROM TO\n";
    return 2;
  }
  try {
    copy_tree(arguments[1], arguments[2], arguments[3]);
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << '\n';
    return 1;
  }
}
