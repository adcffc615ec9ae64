// Which operators vmap runs as a loop over the samples, because LibTorch has no batching rule for them.
//
//   const FallbackReport report;
//   vmap(f)(x);
//   std::cout << report;                                    // aten::special_log_ndtr: 1 time
//   vmap(f, {.fallback = Fallback::kError})(x);             // throws instead
//
// The results are right either way; a loop is slow.
// Python: torch._C._functorch._set_vmap_fallback_enabled, which is for all threads.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>

namespace graft {

/// What vmap does about an operator that LibTorch can only run as a loop.
enum class Fallback {
  kWarn,   ///< It runs, and LibTorch warns, or a FallbackReport notes it.
  kError,  ///< It throws.
};

namespace internal {

/// Passes warnings on to whom they went before, except those about loops.
class FallbackHandler : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override;

 protected:
  /// Called with the operator's name, as "aten::histc".
  virtual void note(const std::string& name) = 0;

 private:
  c10::WarningHandler* const previous_ = c10::WarningUtils::get_warning_handler();
};

/// Makes such an operator throw on this thread.
class FallbackError : public FallbackHandler {
 private:
  /// \throws c10::NotImplementedError
  void note(const std::string& name) override;

  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

}  // namespace internal

/// Counts such operators on this thread, as long as it lives, in place of LibTorch's warnings. Of several reports the
/// innermost counts.
class FallbackReport : private internal::FallbackHandler {
 public:
  /// How often each ran as a loop.
  const std::map<std::string, int64_t>& operators() const { return operators_; }

 private:
  void note(const std::string& name) override { ++operators_[name]; }

  std::map<std::string, int64_t> operators_;
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

/// Prints one operator a line.
std::ostream& operator<<(std::ostream& stream, const FallbackReport& report);

}  // namespace graft
