#include "examples/digits_ensemble/picture.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace digits_ensemble {
namespace {

void draw(int64_t members, int64_t digits, const std::filesystem::path& png) {
  draw_disagreements({at::rand({digits, kPixels}), at::randint(kClasses, {digits}, at::kLong)},
                     at::randn({members, digits, kClasses}).softmax(-1), png);
}

TEST(PictureTest, IsAPngWhetherDigitsAreFewOrMany) {
  const std::filesystem::path png = std::filesystem::path(testing::TempDir()) / "some.png";
  for (const int64_t digits : {1, 12, 40}) {
    draw(/*members=*/3, digits, png);
    std::string start(4, '\0');
    std::ifstream(png, std::ios::binary).read(start.data(), 4);
    EXPECT_EQ(start, "\x89PNG");
    std::filesystem::remove(png);
  }
}

TEST(PictureTest, FailsWhereItCannotWrite) {
  EXPECT_THROW(draw(/*members=*/1, /*digits=*/1, "no/such/folder/some.png"), c10::Error);
}

}  // namespace
}  // namespace digits_ensemble
