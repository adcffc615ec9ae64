#include "examples/digits_ensemble/progress.h"

#include <unistd.h>

#include <cinttypes>
#include <string>

namespace digits_ensemble {
namespace {

constexpr int64_t kEpochsPerLine = 10;
constexpr int64_t kBarWidth = 30;

std::string bar(int64_t done, int64_t total) {
  const int64_t filled = kBarWidth * done / total;
  std::string text;
  for (int64_t i = 0; i < kBarWidth; ++i) text += i < filled ? "█" : "░";
  return text;
}

}  // namespace

Progress::Progress(std::FILE* out, int64_t epochs, int64_t digits_per_epoch)
    : out_(out),
      terminal_(isatty(fileno(out)) == 1),
      epochs_(epochs),
      digits_per_epoch_(digits_per_epoch),
      start_(std::chrono::steady_clock::now()) {}

void Progress::epoch_done(double loss, double validation_loss) {
  ++done_;
  loss_ = loss;
  validation_loss_ = validation_loss;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  digits_per_second_ = static_cast<double>(done_ * digits_per_epoch_) / elapsed.count();
  if (terminal_) {
    draw_bar();
  } else if (done_ % kEpochsPerLine == 0) {
    print_line();
  }
}

void Progress::finish() {
  if (terminal_) {
    std::fputs("\n", out_);
  } else if (done_ % kEpochsPerLine != 0) {
    print_line();
  }
}

void Progress::draw_bar() {
  std::fprintf(out_, "\r%s epoch %" PRId64 "/%" PRId64 "  loss %.4f  validation %.4f  %.0f digits/s ",
               bar(done_, epochs_).c_str(), done_, epochs_, loss_, validation_loss_, digits_per_second_);
  std::fflush(out_);
}

void Progress::print_line() {
  std::fprintf(out_, "epoch %" PRId64 "/%" PRId64 ": loss %.4f, validation %.4f, %.0f digits/s\n", done_, epochs_,
               loss_, validation_loss_, digits_per_second_);
  std::fflush(out_);
}

}  // namespace digits_ensemble
