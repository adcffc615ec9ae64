// The handwritten digits: reading them from a CSV file, and splitting them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>

namespace digits_ensemble {

inline constexpr int64_t kSide = 8;
inline constexpr int64_t kPixels = kSide * kSide;
inline constexpr int64_t kClasses = 10;

/// Digits with their labels; any number of dims `...` may lead.
struct Digits {
  at::Tensor pixels;  // [..., 64], float, 0 (paper) to 1 (ink)
  at::Tensor labels;  // [...], int64, 0 to 9
};

/// Reads a file with one digit a line: 64 pixel values from 0 to 16, then the label, separated by commas.
/// \throws c10::ValueError saying "file:line: what is wrong" if the file cannot be read or is not of that form.
Digits read_digits(const std::filesystem::path& path);

/// Picks digits by number, `indices` being [...]: ([n, 64], [...]) -> [..., 64].
Digits gather(const Digits& digits, const at::Tensor& indices);

struct Split {
  Digits train;
  Digits validation;
  Digits test;
};

/// Shuffles by `seed` and splits 60/20/20.
/// \throws c10::ValueError if a part would be empty.
Split split_digits(const Digits& digits, uint64_t seed);

}  // namespace digits_ensemble
