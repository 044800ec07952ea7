// SPDX-License-Identifier: Apache-2.0
#include "thinwire/train/data.h"

#include <gtest/gtest.h>
#include <png.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "tests/report/scratch.h"
#include "tests/support/expect_throw.h"
#include "thinwire/core/error.h"

namespace thinwire {
namespace {

using test::Scratch;

std::string idx(std::vector<std::uint32_t> shape, std::string bytes) {
  std::string out{0, 0, 8, static_cast<char>(shape.size())};
  for (const auto extent : shape)
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(extent >> shift));
  return out + bytes;
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void write_gzip(const std::string& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
            static_cast<int>(bytes.size()));
  gzclose(file);
}

Dataset load(const std::string& spec) {
  std::vector<std::string> notices;
  return load_dataset(parse_spec(spec), notices);
}

TEST(Idx, PlainAndGzipAreRead) {
  const Scratch scratch;
  write(scratch.file("a"), idx({2, 1, 3}, "abcdef"));
  write_gzip(scratch.file("a.gz"), idx({2, 1, 3}, "abcdef"));
  for (const char* name : {"a", "a.gz"}) {
    const IdxFile file = read_idx(scratch.file(name));
    EXPECT_EQ(file.shape, (std::vector<std::int64_t>{2, 1, 3}));
    EXPECT_EQ(std::string(file.bytes.begin(), file.bytes.end()), "abcdef");
  }
}

TEST(Idx, MalformedFilesAreNamed) {
  const Scratch scratch;
  const std::string path = scratch.file("x");
  for (const std::string& bytes :
       {std::string(), std::string("\0\0", 2), idx({2, 1, 3}, "abcde"), idx({2, 1, 3}, "abcdefg"),
        idx({}, ""), std::string("\0\0\x0d\x01\0\0\0\0", 8), std::string("\0\0\x08\x03\0\0", 6),
        idx({0xffffffff, 0xffffffff, 0xffffffff}, "")}) {
    write(path, bytes);
    TW_EXPECT_THROW(read_idx(path), DataError, path);
  }
  TW_EXPECT_THROW(read_idx(scratch.file("none")), ConfigError, "none");
}

TEST(Idx, DamagedGzipIsADataError) {
  const Scratch scratch;
  std::string noise(5000, 'x');
  for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>(i * i * 31 >> 3);
  write_gzip(scratch.file("a.gz"), idx({5000}, noise));
  std::ifstream in(scratch.file("a.gz"), std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  write(scratch.file("cut.gz"), bytes.substr(0, bytes.size() / 2));
  TW_EXPECT_THROW(read_idx(scratch.file("cut.gz")), DataError, "cut.gz");
  bytes[bytes.size() / 2] = static_cast<char>(~bytes[bytes.size() / 2]);
  write(scratch.file("bad.gz"), bytes);
  TW_EXPECT_THROW(read_idx(scratch.file("bad.gz")), DataError, "bad.gz");
}

TEST(IdxSet, ChecksThatFilesFitEachOther) {
  const Scratch scratch;
  write(scratch.file("i"), idx({2, 2, 2}, "abcdefgh"));
  write(scratch.file("l"), idx({2}, std::string("\x01\x00", 2)));
  write(scratch.file("l3"), idx({3}, std::string("\x01\x00\x01", 3)));
  write(scratch.file("big"), idx({2}, std::string("\x01\x05", 2)));
  write(scratch.file("wide"), idx({2, 2, 3}, "abcdefghijkl"));
  const auto spec = [&](const char* i, const char* l, const char* ti, const char* tl) {
    return "idx{images=" + scratch.file(i) + ",labels=" + scratch.file(l) +
           ",test_images=" + scratch.file(ti) + ",test_labels=" + scratch.file(tl) + "}";
  };
  const Dataset data = load(spec("i", "l", "i", "l"));
  EXPECT_EQ(data.classes, 2);
  EXPECT_EQ(data.train.count, 2);
  EXPECT_EQ(data.sample_bytes(), 4);
  EXPECT_NEAR(data.mean[0] * 255, std::accumulate("abcdefgh", "abcdefgh" + 8, 0.0) / 8, 1e-4);
  TW_EXPECT_THROW(load(spec("i", "l3", "i", "l")), DataError, "3 labels");
  TW_EXPECT_THROW(load(spec("i", "l", "i", "big")), DataError, "test label 5");
  TW_EXPECT_THROW(load(spec("i", "l", "wide", "l")), DataError, "1x2x3");
  TW_EXPECT_THROW(load("idx{images=" + scratch.file("i") + "}"), ConfigError, "labels=");
}

TEST(Cifar, BinaryBatches) {
  const Scratch scratch;
  for (int batch = 1; batch <= 6; ++batch) {
    std::string record(3073, static_cast<char>(batch));
    write(scratch.file(batch == 6 ? "test_batch.bin"
                                  : "data_batch_" + std::to_string(batch) + ".bin"),
          record + record);
  }
  const Dataset data = load("cifar10{folder=" + scratch.path() + "}");
  EXPECT_EQ(data.train.count, 10);
  EXPECT_EQ(data.test.count, 2);
  EXPECT_EQ(data.train.labels[2], 2);
  EXPECT_EQ(data.train.bytes[3072 * 2], 2);
  write(scratch.file("test_batch.bin"), std::string(3073, '\x0a'));
  TW_EXPECT_THROW(load("cifar10{folder=" + scratch.path() + "}"), DataError, "label 10");
  write(scratch.file("test_batch.bin"), std::string(3072, '\x01'));
  TW_EXPECT_THROW(load("cifar10{folder=" + scratch.path() + "}"), DataError, "3072 bytes");
}

TEST(Cifar, PngSheets) {
  const Scratch scratch;
  std::vector<std::uint8_t> pixels(1024 * 2 * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i % 251);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = 1024;
  image.height = 2;
  image.format = PNG_FORMAT_RGB;
  ASSERT_TRUE(png_image_write_to_file(&image, scratch.file("cifar10_batch_0.png").c_str(), 0,
                                      pixels.data(), 0, nullptr));
  write(scratch.file("cifar10_labels.js"), "var labels=[3, 9, 1];\n");
  const Dataset data = load("cifar10{folder=" + scratch.path() + "}");
  ASSERT_EQ(data.train.count, 2);
  EXPECT_EQ(data.train.labels, (std::vector<std::uint8_t>{3, 9}));
  // Image 1, green, pixel 5: row 1, third 1.
  EXPECT_EQ(data.train.bytes[3072 + 1024 + 5], pixels[(1024 + 5) * 3 + 1]);
  write(scratch.file("cifar10_labels.js"), "var labels=[3];\n");
  TW_EXPECT_THROW(load("cifar10{folder=" + scratch.path() + "}"), DataError, "only 1 labels");
  write(scratch.file("cifar10_batch_0.png"), "no picture");
  TW_EXPECT_THROW(load("cifar10{folder=" + scratch.path() + "}"), DataError, "cifar10_batch_0.png");
}

TEST(Text, SplitsNineToOneAndShiftsByOne) {
  const Scratch scratch;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "abcdefghij";
  write(scratch.file("t"), text);
  const Dataset data = load("text{path=" + scratch.file("t") + ",context=8}");
  EXPECT_EQ(data.alphabet, "abcdefghij");
  EXPECT_EQ(data.classes, 10);
  EXPECT_EQ(data.train.bytes.size(), 900u);
  EXPECT_EQ(data.train.count, 899 / 8);
  EXPECT_EQ(data.test.count, 99 / 8);
  write(scratch.file("t"), "short");
  TW_EXPECT_THROW(load("text{path=" + scratch.file("t") + ",context=8}"), DataError, "too few");
}

TEST(Synthetic, SameSeedSameBytes) {
  const Dataset a = load("synthetic{train=50,test=10}"), b = load("synthetic{train=50,test=10}"),
                c = load("synthetic{train=50,test=10,seed=1}");
  EXPECT_EQ(a.train.bytes, b.train.bytes);
  EXPECT_NE(a.train.bytes, c.train.bytes);
  EXPECT_NE(a.train.bytes, a.test.bytes);
  const Dataset text = load("synthetic{text=true,classes=20,context=16,train=5,test=2}");
  EXPECT_EQ(text.train.bytes.size(), 5u * 16 + 1);
  for (const auto symbol : text.train.bytes) EXPECT_LT(symbol, 20);
  TW_EXPECT_THROW(load("synthetic{shape=3x4}"), ConfigError, "CHANNELSxHEIGHTxWIDTH");
  TW_EXPECT_THROW(load("sinthetic"), ConfigError, "synthetic");
}

TEST(Fetch, ChecksTheContent) {
  const Scratch scratch;
  write_gzip(scratch.file("a.gz"), "abc");
  const std::string sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(content_sha256(scratch.file("a.gz")), sum);
  std::vector<std::string> notices;
  EXPECT_TRUE(fetch_file(scratch.path(), "a.gz", sum, {}, notices));
  EXPECT_FALSE(fetch_file(scratch.path(), "b.gz", sum, {}, notices));
  TW_EXPECT_THROW(fetch_file(scratch.path(), "a.gz", "00", {}, notices), DataError, "a.gz");
}

TEST(FashionMnist, RealFiles) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"))
    GTEST_SKIP() << "Fashion-MNIST not found (Debian package dataset-fashion-mnist)";
  const Dataset data = load("fashion_mnist{url=none}");
  EXPECT_EQ(data.train.count, 60000);
  EXPECT_EQ(data.test.count, 10000);
  EXPECT_EQ(data.classes, 10);
  EXPECT_NEAR(data.mean[0], 0.2860, 5e-5);
  EXPECT_NEAR(data.deviation[0], 0.3530, 5e-5);
  EXPECT_EQ(std::count(data.train.labels.begin(), data.train.labels.end(), 7), 6000);
}

TEST(Cifar, RealSheets) {
  const char* root = std::getenv("THINWIRE_DATA");
  const std::string folder = std::string(root ? root : "../shared/data") + "/cifar10";
  if (!std::filesystem::exists(folder + "/cifar10_labels.js"))
    GTEST_SKIP() << "cifar10 not found (set THINWIRE_DATA)";
  const Dataset data = load("cifar10{folder=" + folder + "}");
  EXPECT_EQ(data.train.count, 4000);
  EXPECT_EQ(data.test.count, 1000);
  EXPECT_EQ(data.train.labels[0], 6);  // the first training image is a frog
  EXPECT_EQ(data.train.labels[1], 9);
}

}  // namespace
}  // namespace thinwire
