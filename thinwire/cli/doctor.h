// SPDX-License-Identifier: Apache-2.0
// The parts of `thinwire doctor`.
#pragma once
#include "thinwire/core/json.h"
#include "thinwire/core/types.h"

namespace thinwire {
class Comm;
}

namespace thinwire::cli {

/// {"name", "addresses": [...], "mtu", "up", "speed_bit_per_s" where the device says} of each
/// network interface.
Json network_interfaces();
/// {"congestion_control", "congestion_control_available"} of TCP, here; empty where the system does
/// not say.
Json tcp_settings();
/// {"cores", "cores_allowed": [...], "memory_bytes", "memory_available_bytes", "load_1min"}.
Json machine();
/// {"torch", "blas", "threads", ...} of the torch in this build; empty without one.
Json torch_part();

/// Measures the links between rank 0 and each other rank, one after the other, in both directions.
/// Collective over tcp. On rank 0: [{"from", "to", "bytes_per_s", "round_trip_s"}]; empty on the
/// others.
Json measure_links(Comm& comm);

}  // namespace thinwire::cli
