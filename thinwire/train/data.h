// SPDX-License-Identifier: Apache-2.0
// Data sets in memory, as bytes: images or text. Reading a malformed file is a DataError that names
// it; a file that the user named and that is not there is a ConfigError. No torch.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/core/registry.h"
#include "thinwire/core/spec.h"

namespace thinwire {

enum class SampleKind : std::uint8_t { image, text };

/// Images: `bytes` holds count * channels * height * width pixels, labels one a sample. Text:
/// `bytes` holds symbols (indices of the alphabet); sample i is the `context` symbols from
/// i * context on, and its targets are the symbols one further.
struct SampleSet {
  std::int64_t count = 0;
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> labels;
};

struct Dataset {
  std::string name;    ///< "fashion_mnist"
  std::string source;  ///< for people: which files, or that it is generated
  SampleKind kind = SampleKind::image;
  std::int64_t channels = 0, height = 0, width = 0;  ///< of images
  std::int64_t context = 0;                          ///< of text
  std::int64_t classes = 0;                          ///< labels, or symbols of the alphabet
  std::string alphabet;                              ///< of text: symbol -> character
  std::vector<float> mean, deviation;                ///< per channel, of training pixels / 255
  SampleSet train, test;
  std::int64_t sample_bytes() const;  ///< of one image
};

/// Reads or generates the set that `spec` names. `notices` receives lines for people, for example
/// that a generated set stands in for one that was not found.
Dataset load_dataset(const Spec& spec, std::vector<std::string>& notices);
using DatasetFactory = Dataset (*)(const Spec&, std::vector<std::string>& notices);
const Registry<DatasetFactory>& datasets();

/// Keeps the first `train` and `test` samples; 0 keeps all.
void shorten(Dataset& data, std::int64_t train, std::int64_t test);
/// Per-channel mean and deviation of the training pixels.
void measure_pixels(Dataset& data);

/// A file's bytes; decompressed when they are gzip. ConfigError if it cannot be read, DataError if
/// the gzip stream is damaged.
std::vector<std::uint8_t> read_bytes(const std::string& path);
/// An IDX file of unsigned bytes: header checked against the file's length.
struct IdxFile {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};
IdxFile read_idx(const std::string& path);
/// 8-bit RGB image as height * width * 3 bytes.
struct RgbImage {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels;
};
RgbImage read_png(const std::string& path);

/// SHA-256 as lower-case hex, of a file's content (unpacked where it is gzip: gzip files of equal
/// content differ in their headers).
std::string content_sha256(const std::string& path);
/// Makes sure that folder/name exists with this checksum: kept if it does, else fetched from the
/// first URL that works, through curl or wget. False where nothing could be fetched; DataError if
/// what came has another checksum (it is removed).
bool fetch_file(const std::string& folder, const std::string& name, const std::string& sha256,
                const std::vector<std::string>& urls, std::vector<std::string>& notices);

// One function a set; registered in data.cpp.
Dataset load_fashion_mnist(const Spec& spec, std::vector<std::string>& notices);
Dataset load_idx(const Spec& spec, std::vector<std::string>& notices);
Dataset load_cifar10(const Spec& spec, std::vector<std::string>& notices);
Dataset load_text(const Spec& spec, std::vector<std::string>& notices);
Dataset load_synthetic(const Spec& spec, std::vector<std::string>& notices);

}  // namespace thinwire
