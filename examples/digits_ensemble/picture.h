// Picture: the digits that the members disagree on most, with what they predict, as a PNG.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

#include "examples/digits_ensemble/digits.h"

namespace digits_ensemble {

/// Draws the (at most) twelve of `digits` with the largest `disagreement` (see metrics.h). Beside each is a bar for
/// each class, the members' mean probability, with a dot for each member's own from 1 % on. Takes [m, n, 10].
/// \throws c10::Error if the file cannot be written.
void draw_disagreements(const Digits& digits, const at::Tensor& probabilities, const std::filesystem::path& png);

}  // namespace digits_ensemble
