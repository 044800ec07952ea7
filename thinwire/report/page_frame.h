// SPDX-License-Identifier: Apache-2.0
// Internal to report: the frame that every page shares. One file, style and script within it; the
// browser is told to fetch nothing, whatever a run's texts contain.
#pragma once
#include <string>
#include <string_view>

#include "thinwire/core/json.h"

namespace thinwire {

/// For text and attribute values.
std::string escaped(std::string_view text);
/// `body` and `title` are HTML. `data`: what page.js draws; null for a page without a script.
std::string html_page(std::string_view title, std::string_view body, const Json* data);

}  // namespace thinwire
