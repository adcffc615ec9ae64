// Progress: how far the training is, its loss and its speed.
//
// On a terminal a bar that is drawn over itself; anywhere else a plain line now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>

namespace digits_ensemble {

class Progress {
 public:
  /// Reports on `out` about a training of at most `epochs` epochs, each of which trains `digits_per_epoch` digits.
  Progress(std::FILE* out, int64_t epochs, int64_t digits_per_epoch);

  /// Tells that one more epoch is done, with the members' mean training loss and the ensemble's validation loss.
  void epoch_done(double loss, double validation_loss);

  /// Ends the bar, or prints the last line if it was not printed yet. No epoch follows.
  void finish();

 private:
  void draw_bar();
  void print_line();

  std::FILE* out_;
  bool terminal_;
  int64_t epochs_;
  int64_t digits_per_epoch_;
  std::chrono::steady_clock::time_point start_;

  int64_t done_ = 0;
  double loss_ = 0;
  double validation_loss_ = 0;
  double digits_per_second_ = 0;
};

}  // namespace digits_ensemble
