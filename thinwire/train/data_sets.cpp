// SPDX-License-Identifier: Apache-2.0
// The sets themselves: Fashion-MNIST, any IDX pair, CIFAR-10, text by characters.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "thinwire/core/error.h"
#include "thinwire/core/json.h"
#include "thinwire/train/data.h"
#include "thinwire/train/speed_cache.h"

namespace thinwire {
namespace fs = std::filesystem;
namespace {

constexpr const char* kDebianFolder = "/usr/share/datasets/fashion-mnist";
constexpr const char* kFashionUrl = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com";
struct FashionFile {
  const char* name;
  const char* sha256;  // of the unpacked content
};
constexpr std::array<FashionFile, 4> kFashionFiles{{
    {"train-images-idx3-ubyte", "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"},
    {"train-labels-idx1-ubyte", "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"},
    {"t10k-images-idx3-ubyte", "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"},
    {"t10k-labels-idx1-ubyte", "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"},
}};

/// folder/name or folder/name.gz, whichever is there; empty if neither.
std::string file_in(const std::string& folder, const std::string& name) {
  for (const char* ending : {".gz", ""})
    if (const auto path = fs::path(folder) / (name + ending); fs::exists(path))
      return path.string();
  return {};
}

/// Appends an image file and its labels to a set; the shapes must fit each other.
void add_idx_pair(Dataset& data, SampleSet& set, const std::string& images,
                  const std::string& labels) {
  IdxFile pixels = read_idx(images), answers = read_idx(labels);
  if (pixels.shape.size() != 3 && pixels.shape.size() != 4)
    throw DataError(
        fmt::format("{}: images have 3 or 4 dimensions (count, [channels,] height, "
                    "width), these have {}",
                    images, pixels.shape.size()));
  if (answers.shape.size() != 1)
    throw DataError(
        fmt::format("{}: labels have 1 dimension, these have {}", labels, answers.shape.size()));
  if (pixels.shape[0] != answers.shape[0])
    throw DataError(fmt::format("{} has {} images, {} has {} labels", images, pixels.shape[0],
                                labels, answers.shape[0]));
  const bool grey = pixels.shape.size() == 3;
  const std::array<std::int64_t, 3> form{grey ? 1 : pixels.shape[1], pixels.shape[grey ? 1 : 2],
                                         pixels.shape[grey ? 2 : 3]};
  if (data.channels == 0) {
    data.channels = form[0];
    data.height = form[1];
    data.width = form[2];
  }
  if (form != std::array<std::int64_t, 3>{data.channels, data.height, data.width})
    throw DataError(fmt::format("{}: images of {}x{}x{}, the training images are {}x{}x{}", images,
                                form[0], form[1], form[2], data.channels, data.height, data.width));
  set.count = pixels.shape[0];
  set.bytes = std::move(pixels.bytes);
  set.labels = std::move(answers.bytes);
}

/// Classes are counted from the training labels; the test labels must stay within.
void count_classes(Dataset& data) {
  if (data.train.count == 0) throw DataError(fmt::format("{}: no training samples", data.name));
  data.classes = 1 + *std::max_element(data.train.labels.begin(), data.train.labels.end());
  for (const auto label : data.test.labels)
    if (label >= data.classes)
      throw DataError(fmt::format("{}: test label {} where training labels end at {}", data.name,
                                  label, data.classes - 1));
}

/// The folder that holds all four files, fetched if need be; empty where none is to be had.
std::string fashion_folder(const std::string& url, std::vector<std::string>& notices) {
  const auto whole = [](const std::string& folder) {
    return std::all_of(kFashionFiles.begin(), kFashionFiles.end(),
                       [&](const auto& file) { return !file_in(folder, file.name).empty(); });
  };
  if (whole(kDebianFolder)) return kDebianFolder;
  const std::string cache = cache_folder() + "/fashion-mnist";
  if (url == "none") return whole(cache) ? cache : std::string();
  for (const auto& file : kFashionFiles) {
    const std::string name = std::string(file.name) + ".gz";
    if (!fetch_file(cache, name, file.sha256, {url + "/" + name}, notices)) return {};
  }
  return cache;
}

void add_cifar_batch(SampleSet& set, const std::string& path) {
  constexpr std::size_t kRecord = 1 + 3072;
  const auto bytes = read_bytes(path);
  if (bytes.empty() || bytes.size() % kRecord != 0)
    throw DataError(fmt::format("{}: no CIFAR-10 batch: {} bytes are no multiple of {}", path,
                                bytes.size(), kRecord));
  for (std::size_t at = 0; at < bytes.size(); at += kRecord) {
    if (bytes[at] > 9)
      throw DataError(fmt::format("{}: label {} in record {}, 0 to 9 are valid", path, bytes[at],
                                  at / kRecord));
    set.labels.push_back(bytes[at]);
    set.bytes.insert(set.bytes.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                     bytes.begin() + static_cast<std::ptrdiff_t>(at + kRecord));
    ++set.count;
  }
}

std::vector<std::uint8_t> read_labels_js(const std::string& path) {
  const std::string text = read_text(path);
  const auto open = text.find('['), close = text.rfind(']');
  if (open == std::string::npos || close == std::string::npos || close < open)
    throw DataError(fmt::format("{}: 'var labels=[...];' was expected", path));
  std::vector<std::uint8_t> labels;
  const Json list = parse_json(std::string_view(text).substr(open, close - open + 1), path);
  for (const auto& item : list) {
    if (!item.is_number_integer() || item < 0 || item > 9)
      throw DataError(fmt::format("{}: label {} of image {}, 0 to 9 are valid", path, item.dump(),
                                  labels.size()));
    labels.push_back(item.get<std::uint8_t>());
  }
  return labels;
}

/// One sheet: an image a row, pixels side by side with their three colours together.
void add_cifar_sheet(SampleSet& set, const std::string& path,
                     const std::vector<std::uint8_t>& labels, std::size_t first_label) {
  const RgbImage sheet = read_png(path);
  if (sheet.width != 1024)
    throw DataError(fmt::format("{}: a sheet is 1024 pixels wide, this is {}", path, sheet.width));
  const auto rows = static_cast<std::size_t>(sheet.height);
  if (first_label + rows > labels.size())
    throw DataError(fmt::format("{}: {} images from number {} on, but only {} labels", path, rows,
                                first_label, labels.size()));
  const std::size_t before = set.bytes.size();
  set.bytes.resize(before + rows * 3072);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t pixel = 0; pixel < 1024; ++pixel)
      for (std::size_t colour = 0; colour < 3; ++colour)
        set.bytes[before + row * 3072 + colour * 1024 + pixel] =
            sheet.pixels[(row * 1024 + pixel) * 3 + colour];
  set.labels.insert(set.labels.end(), labels.begin() + static_cast<std::ptrdiff_t>(first_label),
                    labels.begin() + static_cast<std::ptrdiff_t>(first_label + rows));
  set.count += sheet.height;
}

}  // namespace

Dataset load_fashion_mnist(const Spec& spec, std::vector<std::string>& notices) {
  SpecReader reader(spec);
  std::string folder = reader.text("folder", "");
  const std::string url = reader.text("url", kFashionUrl);
  reader.finish();
  const bool asked = !folder.empty();
  if (!asked) folder = fashion_folder(url, notices);
  if (folder.empty()) {
    notices.push_back(
        "Fashion-MNIST was not found and could not be fetched (Debian package "
        "dataset-fashion-mnist, or data=fashion_mnist{folder=...}); training on a generated set "
        "of the same form instead: its accuracy says nothing about Fashion-MNIST");
    return load_synthetic(parse_spec("synthetic{shape=1x28x28,classes=10,train=12000,test=2000}"),
                          notices);
  }
  Dataset data{.name = "fashion_mnist", .source = folder};
  std::array<std::string, 4> files;
  for (std::size_t i = 0; i < files.size(); ++i) {
    files[i] = file_in(folder, kFashionFiles[i].name);
    if (files[i].empty())
      throw ConfigError(
          fmt::format("fashion_mnist: {}/{}[.gz] is missing", folder, kFashionFiles[i].name));
  }
  add_idx_pair(data, data.train, files[0], files[1]);
  add_idx_pair(data, data.test, files[2], files[3]);
  count_classes(data);
  measure_pixels(data);
  return data;
}

Dataset load_idx(const Spec& spec, std::vector<std::string>&) {
  SpecReader reader(spec);
  const std::string images = reader.text("images", ""), labels = reader.text("labels", "");
  const std::string test_images = reader.text("test_images", ""),
                    test_labels = reader.text("test_labels", "");
  reader.finish();
  if (images.empty() || labels.empty() || test_images.empty() != test_labels.empty())
    throw ConfigError(
        "idx: images= and labels= name the training files, test_images= and test_labels= (both or "
        "neither) the test files");
  Dataset data{.name = "idx", .source = images};
  add_idx_pair(data, data.train, images, labels);
  if (!test_images.empty()) add_idx_pair(data, data.test, test_images, test_labels);
  count_classes(data);
  measure_pixels(data);
  return data;
}

Dataset load_cifar10(const Spec& spec, std::vector<std::string>& notices) {
  SpecReader reader(spec);
  std::string folder = reader.text("folder", "");
  reader.finish();
  if (folder.empty()) {
    const char* root = std::getenv("THINWIRE_DATA");
    folder = std::string(root && *root ? root : "../shared/data") + "/cifar10";
  }
  Dataset data{
      .name = "cifar10", .source = folder, .channels = 3, .height = 32, .width = 32, .classes = 10};
  if (fs::exists(fs::path(folder) / "cifar-10-batches-bin"))
    folder = (fs::path(folder) / "cifar-10-batches-bin").string();
  const auto at = [&](const std::string& name) { return (fs::path(folder) / name).string(); };
  if (fs::exists(at("data_batch_1.bin"))) {
    for (int batch = 1; batch <= 5; ++batch)
      add_cifar_batch(data.train, at(fmt::format("data_batch_{}.bin", batch)));
    add_cifar_batch(data.test, at("test_batch.bin"));
  } else if (fs::exists(at("cifar10_labels.js"))) {
    const auto labels = read_labels_js(at("cifar10_labels.js"));
    for (std::size_t sheet = 0; sheet < 50; ++sheet)
      if (const std::string path = at(fmt::format("cifar10_batch_{}.png", sheet)); fs::exists(path))
        add_cifar_sheet(data.train, path, labels, 1000 * sheet);
    if (const std::string path = at("cifar10_batch_50.png"); fs::exists(path))
      add_cifar_sheet(data.test, path, labels, 50000);
    if (data.train.count < 50000)
      notices.push_back(
          fmt::format("CIFAR-10: the PNG sheets here hold {} training and {} test "
                      "images, the whole set has 50000 and 10000",
                      data.train.count, data.test.count));
  } else {
    throw ConfigError(fmt::format(
        "cifar10: neither data_batch_1.bin nor cifar10_labels.js in '{}' (set folder= or "
        "THINWIRE_DATA)",
        folder));
  }
  if (data.train.count == 0) throw ConfigError(fmt::format("cifar10: no images in '{}'", folder));
  measure_pixels(data);
  return data;
}

Dataset load_text(const Spec& spec, std::vector<std::string>&) {
  SpecReader reader(spec);
  std::string path = reader.text("path", "");
  const std::int64_t context = reader.integer("context", 128);
  reader.finish();
  if (path.empty()) {
    const char* root = std::getenv("THINWIRE_DATA");
    path = std::string(root && *root ? root : "../shared/data") + "/tiny-shakespeare/input.txt";
  }
  if (context < 1)
    throw ConfigError(fmt::format("text: context must be at least 1, got {}", context));
  auto bytes = read_bytes(path);
  Dataset data{.name = "text", .source = path, .kind = SampleKind::text, .context = context};
  std::array<bool, 256> seen{};
  for (const auto byte : bytes) seen[byte] = true;
  std::array<std::uint8_t, 256> symbol{};
  for (int byte = 0; byte < 256; ++byte)
    if (seen[static_cast<std::size_t>(byte)]) {
      symbol[static_cast<std::size_t>(byte)] = static_cast<std::uint8_t>(data.alphabet.size());
      data.alphabet.push_back(static_cast<char>(byte));
    }
  for (auto& byte : bytes) byte = symbol[byte];
  data.classes = static_cast<std::int64_t>(data.alphabet.size());
  const auto split = static_cast<std::ptrdiff_t>(bytes.size() / 10 * 9);
  data.train.bytes.assign(bytes.begin(), bytes.begin() + split);
  data.test.bytes.assign(bytes.begin() + split, bytes.end());
  for (auto* set : {&data.train, &data.test})
    set->count =
        std::max<std::int64_t>(0, (static_cast<std::int64_t>(set->bytes.size()) - 1) / context);
  if (data.train.count == 0)
    throw DataError(fmt::format("{}: {} characters are too few for a context of {}", path,
                                bytes.size(), context));
  return data;
}

}  // namespace thinwire
