#include "examples/digits_ensemble/picture.h"

#include <ATen/ATen.h>
#include <absl/strings/str_format.h>
#include <c10/util/Exception.h>
#include <cairo/cairo.h>

#include <algorithm>
#include <memory>
#include <numbers>
#include <string>
#include <utility>

#include "examples/digits_ensemble/metrics.h"

namespace digits_ensemble {
namespace {

// Sizes in units of two pixels, so that the picture is sharp on dense screens.
constexpr int kScale = 2;
constexpr int kColumns = 3;
constexpr int kRows = 4;
constexpr double kMargin = 24;
constexpr double kHeader = 104;
constexpr double kCellWidth = 320;
constexpr double kCellHeight = 188;
constexpr double kCellHead = 42;  // the two lines above a digit
constexpr double kDigitSize = 112;
constexpr double kChartLeft = kDigitSize + 32;
constexpr double kChartHeight = kDigitSize;
constexpr double kBarStep = 15;
constexpr double kBarWidth = 11;
constexpr double kLeastDot = 0.01;  // the many members below would cover the base line
constexpr double kColumnGap = kCellWidth - kChartLeft - 10 * kBarStep;

struct Color {
  double red, green, blue, alpha = 1;
};
constexpr Color kPaper = {1, 1, 1};
constexpr Color kText = {0.13, 0.15, 0.19};
constexpr Color kFaint = {0.86, 0.87, 0.89};
constexpr Color kMuted = {0.38, 0.41, 0.46};
constexpr Color kTrue = {0.30, 0.69, 0.54};   // bar of the true class
constexpr Color kOther = {0.66, 0.75, 0.87};  // bars of the other classes
constexpr Color kMember = {0.10, 0.12, 0.18, 0.6};
constexpr Color kWrong = {0.78, 0.20, 0.15};

/// The few shapes that the picture is made of.
class Canvas {
 public:
  Canvas(double width, double height)
      : surface_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(width * kScale),
                                            static_cast<int>(height * kScale)),
                 cairo_surface_destroy),
        cairo_(cairo_create(surface_.get()), cairo_destroy) {
    cairo_scale(cairo_.get(), kScale, kScale);
    rectangle(0, 0, width, height, kPaper);
  }

  void rectangle(double x, double y, double width, double height, Color color) {
    use(color);
    cairo_rectangle(cairo_.get(), x, y, width, height);
    cairo_fill(cairo_.get());
  }

  void frame(double x, double y, double width, double height, Color color) {
    use(color);
    cairo_set_line_width(cairo_.get(), 1);
    cairo_rectangle(cairo_.get(), x - 0.5, y - 0.5, width + 1, height + 1);
    cairo_stroke(cairo_.get());
  }

  void dot(double x, double y, Color color) {
    constexpr double kRadius = 1.6;
    use(color);
    cairo_arc(cairo_.get(), x, y, kRadius, 0, 2 * std::numbers::pi);
    cairo_fill(cairo_.get());
  }

  enum class Weight { kNormal, kBold };
  enum class Anchor { kLeft, kMiddle, kRight };

  /// Writes with `x` at the anchor of the text and `y` at its foot; returns where the text ends.
  double text(double x, double y, const std::string& text, double size, Color color, Weight weight = Weight::kNormal,
              Anchor anchor = Anchor::kLeft) {
    use(color);
    cairo_select_font_face(cairo_.get(), "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           weight == Weight::kBold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cairo_.get(), size);
    cairo_text_extents_t extents;
    cairo_text_extents(cairo_.get(), text.c_str(), &extents);
    const double start = x - extents.x_advance * static_cast<double>(anchor) / 2;
    cairo_move_to(cairo_.get(), start, y);
    cairo_show_text(cairo_.get(), text.c_str());
    return start + extents.x_advance;
  }

  void write(const std::filesystem::path& png) {
    const cairo_status_t status = cairo_surface_write_to_png(surface_.get(), png.c_str());
    TORCH_CHECK(status == CAIRO_STATUS_SUCCESS, png.string(),
                ": the picture cannot be written: ", cairo_status_to_string(status));
  }

 private:
  void use(Color color) { cairo_set_source_rgba(cairo_.get(), color.red, color.green, color.blue, color.alpha); }

  std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)> surface_;
  std::unique_ptr<cairo_t, decltype(&cairo_destroy)> cairo_;
};

using Weight = Canvas::Weight;
using Anchor = Canvas::Anchor;

/// Draws the ink of 8x8 pixels.
void draw_digit(Canvas& canvas, double x, double y, const at::Tensor& pixels) {
  constexpr double kPixelSize = kDigitSize / kSide;
  const at::Tensor ink = pixels.contiguous();
  const float* values = ink.const_data_ptr<float>();
  for (int64_t i = 0; i < kPixels; ++i) {
    const double shade = 1 - values[i];
    canvas.rectangle(x + static_cast<double>(i % kSide) * kPixelSize, y + static_cast<double>(i / kSide) * kPixelSize,
                     kPixelSize, kPixelSize, {shade, shade, shade});
  }
  canvas.frame(x, y, kDigitSize, kDigitSize, kFaint);
}

/// Draws the lines of the probabilities 0, 0.5 and 1, the chart's lower left corner being at (x, y).
void draw_axis(Canvas& canvas, double x, double y) {
  for (const double probability : {0.0, 0.5, 1.0}) {
    const double height = y - kChartHeight * probability;
    canvas.rectangle(x, height - 0.5, kClasses * kBarStep, 1, kFaint);
    canvas.text(x - 4, height + 4, absl::StrFormat("%g", probability), 11, kMuted, Weight::kNormal, Anchor::kRight);
  }
}

/// Draws what the members, [m, 10], say about one digit: their mean for each class as a bar, with a dot for each
/// member.
void draw_chart(Canvas& canvas, double x, double y, const at::Tensor& probabilities, int64_t label) {
  const at::Tensor members = probabilities.to(at::kDouble).contiguous();
  const at::Tensor means = members.mean(0);
  const double* member = members.const_data_ptr<double>();
  const double* mean = means.const_data_ptr<double>();
  draw_axis(canvas, x, y);
  for (int64_t c = 0; c < kClasses; ++c) {
    const double left = x + static_cast<double>(c) * kBarStep + (kBarStep - kBarWidth) / 2;
    canvas.rectangle(left, y - kChartHeight * mean[c], kBarWidth, kChartHeight * mean[c], c == label ? kTrue : kOther);
    for (int64_t i = 0; i < members.size(0); ++i) {
      if (member[i * kClasses + c] < kLeastDot) continue;
      const double share = (static_cast<double>(i) + 0.5) / static_cast<double>(members.size(0));
      canvas.dot(left + kBarWidth * share, y - kChartHeight * member[i * kClasses + c], kMember);
    }
    canvas.text(left + kBarWidth / 2, y + 16, std::to_string(c), 12, c == label ? kText : kMuted,
                c == label ? Weight::kBold : Weight::kNormal, Anchor::kMiddle);
  }
}

/// Draws one digit and its chart, with its upper left corner at (x, y).
void draw_cell(Canvas& canvas, double x, double y, const at::Tensor& pixels, int64_t label,
               const at::Tensor& probabilities) {
  const auto [probability, predicted] = probabilities.mean(0).max(0);
  const bool right = predicted.item<int64_t>() == label;
  const int64_t right_members = probabilities.argmax(-1).eq(label).sum().item<int64_t>();
  canvas.text(x, y + 14,
              absl::StrFormat("true %d, ensemble says %d (%.0f %%)", label, predicted.item<int64_t>(),
                              100 * probability.item<double>()),
              13, right ? kText : kWrong, Weight::kBold);
  canvas.text(x, y + 31, absl::StrFormat("%d of %d members are right", right_members, probabilities.size(0)), 12,
              kMuted);
  draw_digit(canvas, x, y + kCellHead, pixels);
  draw_chart(canvas, x + kChartLeft, y + kCellHead + kChartHeight, probabilities, label);
}

void draw_header(Canvas& canvas, int64_t shown, int64_t digits, int64_t members) {
  canvas.text(kMargin, kMargin + 20, "Where the members disagree most", 24, kText, Weight::kBold);
  canvas.text(kMargin, kMargin + 44,
              absl::StrFormat("%d of %d test digits, the most disputed first, and the probability that each of %d "
                              "networks gives to each class",
                              shown, digits, members),
              14, kMuted);

  constexpr double kGap = 24;
  const double y = kMargin + 70;
  double x = kMargin;
  for (const auto& [color, words] : {std::pair(kTrue, "mean, true class"), std::pair(kOther, "mean, other class")}) {
    canvas.rectangle(x, y - 10, kBarWidth, kBarWidth, color);
    x = canvas.text(x + kBarWidth + 6, y, words, 13, kText) + kGap;
  }
  canvas.dot(x, y - 4.5, kMember);
  x = canvas.text(x + 8, y, "one member, if above 1 %", 13, kText) + kGap;
  canvas.text(x, y, "red title: the ensemble is wrong", 13, kWrong);
}

}  // namespace

void draw_disagreements(const Digits& digits, const at::Tensor& probabilities, const std::filesystem::path& png) {
  const int64_t count = digits.labels.size(0);
  const int64_t shown = std::min<int64_t>(kColumns * kRows, count);
  const at::Tensor order = disagreement(probabilities).argsort(/*dim=*/-1, /*descending=*/true);

  const auto rows = static_cast<double>((shown + kColumns - 1) / kColumns);
  Canvas canvas(2 * kMargin + kColumns * kCellWidth - kColumnGap, kMargin + kHeader + rows * kCellHeight);
  draw_header(canvas, shown, count, probabilities.size(0));
  for (int64_t i = 0; i < shown; ++i) {
    const int64_t digit = order[i].item<int64_t>();
    draw_cell(canvas, kMargin + static_cast<double>(i % kColumns) * kCellWidth,
              kMargin + kHeader + static_cast<double>(i / kColumns) * kCellHeight, digits.pixels[digit],
              digits.labels[digit].item<int64_t>(), probabilities.select(1, digit));
  }
  canvas.write(png);
}

}  // namespace digits_ensemble
