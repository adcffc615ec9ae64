#include "examples/digits_ensemble/digits.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

#include <charconv>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace digits_ensemble {
namespace {

constexpr float kInk = 16;  // the largest pixel value

/// Splits at every comma, so that "1,,2" has an empty field in the middle.
std::vector<std::string_view> split_fields(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t comma; (comma = line.find(',')) != line.npos; line.remove_prefix(comma + 1)) {
    fields.push_back(line.substr(0, comma));
  }
  fields.push_back(line);
  return fields;
}

/// Parses the whole of `text` as a number from 0 to `last`; `where` is "file:line: column".
template <typename Number>
Number parse(std::string_view text, Number last, const std::string& where, std::string_view what) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TORCH_CHECK_VALUE(error == std::errc() && end == text.data() + text.size(), where, ": \"", text, "\" is not a ",
                    what);
  TORCH_CHECK_VALUE(value >= 0 && value <= last, where, ": the ", what, " ", text, " is not in 0 to ", last);
  return value;
}

}  // namespace

Digits read_digits(const std::filesystem::path& path) {
  TORCH_CHECK_VALUE(std::filesystem::exists(path), path.string(), ": there is no such file");
  std::ifstream file(path);
  TORCH_CHECK_VALUE(file && !std::filesystem::is_directory(path), path.string(), ": the file cannot be read");

  std::vector<float> pixels;
  std::vector<int64_t> labels;
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    const std::string where = path.string() + ":" + std::to_string(labels.size() + 1);
    const std::vector<std::string_view> fields = split_fields(line);
    TORCH_CHECK_VALUE(fields.size() == kPixels + 1, where, ": expected ", kPixels + 1, " columns, found ",
                      line.empty() ? 0 : fields.size());
    for (int64_t i = 0; i < kPixels; ++i) {
      pixels.push_back(parse(fields[i], kInk, where + ": column " + std::to_string(i + 1), "pixel value") / kInk);
    }
    labels.push_back(parse(fields.back(), kClasses - 1, where + ": column " + std::to_string(kPixels + 1), "label"));
  }
  TORCH_CHECK_VALUE(!file.bad(), path.string(), ": the file cannot be read");
  TORCH_CHECK_VALUE(!labels.empty(), path.string(), ": the file is empty");
  return {at::tensor(pixels).view({-1, kPixels}), at::tensor(labels)};
}

Digits gather(const Digits& digits, const at::Tensor& indices) {
  const at::Tensor flat = indices.flatten();
  std::vector<int64_t> shape = indices.sizes().vec();
  const at::Tensor labels = digits.labels.index_select(0, flat).view(shape);
  shape.push_back(kPixels);
  return {digits.pixels.index_select(0, flat).view(shape), labels};
}

Split split_digits(const Digits& digits, uint64_t seed) {
  const int64_t count = digits.labels.size(0);
  const int64_t validation = count / 5;
  const int64_t test = count / 5;
  TORCH_CHECK_VALUE(validation > 0, "split_digits: ", count, " digits are too few to split, expected at least 5");

  const at::Tensor order = at::randperm(count, at::make_generator<at::CPUGeneratorImpl>(seed));
  const std::vector<at::Tensor> parts = order.split_with_sizes({count - validation - test, validation, test});
  return {gather(digits, parts[0]), gather(digits, parts[1]), gather(digits, parts[2])};
}

}  // namespace digits_ensemble
