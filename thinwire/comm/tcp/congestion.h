// SPDX-License-Identifier: Apache-2.0
// Which congestion control the data connections use: it decides what a thin link really carries, so
// it is said, recorded, and can be asked for ("tcp{congestion=cubic}").
#pragma once
#include <string>

namespace thinwire {
class Comm;

/// Of the data connections of a communicator over `tcp`, decorated or not; empty: another
/// transport, or one rank.
std::string congestion_control(Comm& comm);

namespace tcp {
/// Refuses what this kernel does not allow, before anybody waits: ConfigError with those it does.
void check_congestion(const std::string& name);
void set_congestion(int fd, const std::string& name);
std::string congestion_of(int fd);  ///< empty where the system does not say
}  // namespace tcp

}  // namespace thinwire
