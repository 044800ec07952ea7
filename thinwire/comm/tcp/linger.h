// SPDX-License-Identifier: Apache-2.0
// Closes a connection whose last bytes may still be on their way.
#pragma once

namespace thinwire::tcp {

/// Takes the socket over and returns at once. Closing a socket while bytes of the peer wait in it
/// resets the connection, and with it what the peer has not yet been sent. So, unless all is
/// acknowledged already, the socket is read out in the background until it is (10 s at most; 2 s
/// once the program is ending).
void close_gently(int fd);

}  // namespace thinwire::tcp
