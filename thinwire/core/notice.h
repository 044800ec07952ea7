// SPDX-License-Identifier: Apache-2.0
// The library never prints. What a person should know goes to one callback, which the program
// installs.
#pragma once
#include <functional>
#include <string>

namespace thinwire {

using NoticeFn = std::function<void(const std::string& text)>;

/// Installs the callback (process-wide, any thread may call it) and returns the one before; empty:
/// dropped.
NoticeFn on_notice(NoticeFn fn);
void notice(const std::string& text);

}  // namespace thinwire
