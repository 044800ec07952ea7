// SPDX-License-Identifier: Apache-2.0
// Which congestion control the data connections use: it decides what a thin link really carries, so
// it is said, recorded, and can be asked for ("tcp{congestion=cubic}").
#pragma once
#include <string>

#include "thinwire/core/types.h"

namespace thinwire {
class Comm;

/// Of the data connections of a communicator over `tcp`, decorated or not (several, if its links
/// differ: "cubic, bbr"); empty: another transport, or one rank.
std::string congestion_control(Comm& comm);

namespace tcp {
/// Refuses what this kernel does not allow, before anybody waits: ConfigError with those it does.
void check_congestion(const std::string& name);
void set_congestion(int fd, const std::string& name);
std::string congestion_of(int fd);  ///< empty where the system does not say
/// What to use where nobody asks, by the system's own and the shortest round trip seen; empty: the
/// system's. bbr measures the round trip anew every ten seconds and sends next to nothing for 0.2 s
/// meanwhile; and it spreads what it sends, which between neighbours leaves the link idle before it
/// finds its rate. It is meant for long links, and stays there.
std::string congestion_for(const std::string& systems, Seconds round_trip_s);
/// Applies that to a connection; where the kernel does not allow it, the system's stays.
void choose_congestion(int fd);
}  // namespace tcp

}  // namespace thinwire
