// SPDX-License-Identifier: Apache-2.0
// Words for people: nearest names, bytes, rates and seconds with units, and their parsing.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace thinwire {

/// The names nearest to `wrong` by edit distance, best first; at most `most`, none farther than
/// half its length.
std::vector<std::string> nearest(std::string_view wrong, std::span<const std::string> names,
                                 int most = 3);
/// "unknown codec 'tokp'; did you mean 'topk'? valid: none, topk" (the sentence of every unknown
/// name).
std::string unknown_name(std::string_view what, std::string_view wrong,
                         std::span<const std::string> names);
std::string format_bytes(std::int64_t bytes);  ///< "1.5 MB" (powers of 1000)
std::string format_seconds(double seconds);    ///< "12.3 ms"
std::string format_rate(double bytes_per_s);   ///< "941 Mbit/s"
double parse_rate(
    std::string_view text);  ///< "100mbit", "1 Gbit/s", "12.5MB/s" -> bytes per second; ConfigError
double parse_seconds(std::string_view text);      ///< "0.2ms", "50 us", "1.5s", "2e-4"; ConfigError
std::int64_t parse_bytes(std::string_view text);  ///< "25MiB", "1e6", "64 KB"; ConfigError
std::vector<std::string> split(std::string_view text, char separator);
std::string join(std::span<const std::string> parts, std::string_view separator);

}  // namespace thinwire
