// SPDX-License-Identifier: Apache-2.0
// The files of the page, compiled in at build time (CMakeLists.txt), so that a report needs nothing
// installed.
#pragma once
#include <string_view>

namespace thinwire {

extern const std::string_view kPageCss, kPageJs, kChartJs;

}  // namespace thinwire
