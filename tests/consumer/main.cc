#include <ATen/ATen.h>

#include <iostream>

#include "tensordict/tensordict.h"

int main() {
  graft::TensorDict td({{"a", at::ones({2})}});
  std::cout << td.size() << "\n";
}
