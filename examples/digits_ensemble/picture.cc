#include "examples/digits_ensemble/picture.h"

#include <ATen/ATen.h>
#include <absl/strings/str_format.h>
#include <c10/util/Exception.h>
#include <cairo/cairo.h>

#include <algorithm>
#include <memory>
#include <string>

#include "examples/digits_ensemble/metrics.h"

namespace digits_ensemble {
namespace {

// Sizes in pixels.
constexpr int kColumns = 4;
constexpr int kRows = 3;
constexpr double kMargin = 28;
constexpr double kHeader = 86;
constexpr double kCellWidth = 322;
constexpr double kCellHeight = 186;
constexpr double kDigitSize = 128;
constexpr double kBarStep = 15;
constexpr double kBarWidth = 10;
constexpr double kBarHeight = 112;
constexpr int kWidth = static_cast<int>(2 * kMargin + kColumns * kCellWidth);
constexpr int kHeight = static_cast<int>(kMargin + kHeader + kRows * kCellHeight);

struct Color {
  double red, green, blue;
};
constexpr Color kPaper = {1, 1, 1};
constexpr Color kText = {0.13, 0.15, 0.19};
constexpr Color kFaint = {0.86, 0.87, 0.89};
constexpr Color kMuted = {0.42, 0.45, 0.50};
constexpr Color kRight = {0.16, 0.60, 0.45};  // bar of the true label
constexpr Color kOther = {0.55, 0.66, 0.80};  // bars of the other classes
constexpr Color kWrong = {0.83, 0.29, 0.22};

/// The few shapes that the picture is made of.
class Canvas {
 public:
  Canvas(int width, int height)
      : surface_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height), cairo_surface_destroy),
        cairo_(cairo_create(surface_.get()), cairo_destroy) {
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

  void line(double x1, double y1, double x2, double y2, Color color, double width = 1.2) {
    use(color);
    cairo_set_line_width(cairo_.get(), width);
    cairo_move_to(cairo_.get(), x1, y1);
    cairo_line_to(cairo_.get(), x2, y2);
    cairo_stroke(cairo_.get());
  }

  enum class Weight { kNormal, kBold };

  /// Writes with `x` at the left end of the text and `y` at its foot.
  void text(double x, double y, const std::string& text, double size, Color color, Weight weight = Weight::kNormal) {
    use(color);
    set_font(size, weight);
    cairo_move_to(cairo_.get(), x, y);
    cairo_show_text(cairo_.get(), text.c_str());
  }

  /// The same with `x` in the middle of the text.
  void centered_text(double x, double y, const std::string& text, double size, Color color,
                     Weight weight = Weight::kNormal) {
    set_font(size, weight);
    cairo_text_extents_t extents;
    cairo_text_extents(cairo_.get(), text.c_str(), &extents);
    this->text(x - extents.x_advance / 2, y, text, size, color, weight);
  }

  void write(const std::filesystem::path& png) {
    const cairo_status_t status = cairo_surface_write_to_png(surface_.get(), png.c_str());
    TORCH_CHECK(status == CAIRO_STATUS_SUCCESS, png.string(),
                ": the picture cannot be written: ", cairo_status_to_string(status));
  }

 private:
  void use(Color color) { cairo_set_source_rgb(cairo_.get(), color.red, color.green, color.blue); }
  void set_font(double size, Weight weight) {
    cairo_select_font_face(cairo_.get(), "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           weight == Weight::kBold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cairo_.get(), size);
  }

  std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)> surface_;
  std::unique_ptr<cairo_t, decltype(&cairo_destroy)> cairo_;
};

/// What the members say about one digit; each is [10].
struct Prediction {
  explicit Prediction(const at::Tensor& probabilities)  // [m, 10]
      : mean(probabilities.mean(0).to(at::kFloat).contiguous()),
        least(probabilities.amin(0).to(at::kFloat).contiguous()),
        greatest(probabilities.amax(0).to(at::kFloat).contiguous()) {}

  at::Tensor mean, least, greatest;
};

/// Draws mean as a bar and least to greatest as a whisker, on a base line at `y`.
void draw_bar(Canvas& canvas, double x, double y, double mean, double least, double greatest, Color color) {
  constexpr double kTip = 3;
  const double middle = x + kBarWidth / 2;
  const double top = y - kBarHeight * greatest;
  const double bottom = y - kBarHeight * least;
  canvas.rectangle(x, y - kBarHeight * mean, kBarWidth, kBarHeight * mean, color);
  canvas.line(middle, bottom, middle, top, kText);
  canvas.line(middle - kTip, top, middle + kTip, top, kText);
  canvas.line(middle - kTip, bottom, middle + kTip, bottom, kText);
}

void draw_bars(Canvas& canvas, double x, double y, const Prediction& prediction, int64_t label) {
  const float* mean = prediction.mean.const_data_ptr<float>();
  const float* least = prediction.least.const_data_ptr<float>();
  const float* greatest = prediction.greatest.const_data_ptr<float>();
  const double width = kClasses * kBarStep;
  for (const double share : {0.0, 0.5, 1.0}) {
    const double height = y - kBarHeight * share;
    canvas.line(x, height, x + width, height, kFaint, 1);
  }
  for (int64_t c = 0; c < kClasses; ++c) {
    const double left = x + static_cast<double>(c) * kBarStep + (kBarStep - kBarWidth) / 2;
    const bool right = c == label;
    draw_bar(canvas, left, y, mean[c], least[c], greatest[c], right ? kRight : kOther);
    canvas.centered_text(left + kBarWidth / 2, y + 16, std::to_string(c), 12, right ? kRight : kMuted,
                         right ? Canvas::Weight::kBold : Canvas::Weight::kNormal);
  }
}

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

void draw_cell(Canvas& canvas, double x, double y, const at::Tensor& pixels, int64_t label,
               const Prediction& prediction) {
  const int64_t predicted = prediction.mean.argmax().item<int64_t>();
  const std::string verdict = absl::StrFormat("true %d, ensemble says %d", label, predicted);
  canvas.text(x, y + 14, verdict, 13, predicted == label ? kText : kWrong, Canvas::Weight::kBold);
  draw_digit(canvas, x, y + 24, pixels);
  draw_bars(canvas, x + kDigitSize + 14, y + 24 + kBarHeight, prediction, label);
}

void draw_header(Canvas& canvas, int64_t members) {
  canvas.text(kMargin, kMargin + 20, "Where the members disagree most", 24, kText, Canvas::Weight::kBold);
  const std::string subtitle =
      absl::StrFormat("test digits, and the probabilities that %d networks give them", members);
  canvas.text(kMargin, kMargin + 44, subtitle, 14, kMuted);

  double x = kWidth - kMargin - 536;
  const double y = kMargin + 44;
  canvas.rectangle(x, y - 10, 12, 12, kRight);
  canvas.text(x + 18, y, "mean, true label", 13, kText);
  x += 156;
  canvas.rectangle(x, y - 10, 12, 12, kOther);
  canvas.text(x + 18, y, "mean, other label", 13, kText);
  x += 166;
  draw_bar(canvas, x, y + 3, 0, 0, 16 / kBarHeight, kOther);
  canvas.text(x + 18, y, "least to greatest member", 13, kText);
}

}  // namespace

void draw_disagreements(const Digits& digits, const at::Tensor& probabilities, const std::filesystem::path& png) {
  const int64_t shown = std::min<int64_t>(kColumns * kRows, digits.labels.size(0));
  const at::Tensor order = disagreement(probabilities).argsort(/*dim=*/-1, /*descending=*/true);

  Canvas canvas(kWidth, kHeight);
  draw_header(canvas, probabilities.size(0));
  for (int64_t i = 0; i < shown; ++i) {
    const int64_t digit = order[i].item<int64_t>();
    draw_cell(canvas, kMargin + static_cast<double>(i % kColumns) * kCellWidth,
              kMargin + kHeader + static_cast<double>(i / kColumns) * kCellHeight, digits.pixels[digit],
              digits.labels[digit].item<int64_t>(), Prediction(probabilities.select(1, digit)));
  }
  canvas.write(png);
}

}  // namespace digits_ensemble
