#pragma once
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace quire {

// socket(2) that programs started from here do not inherit; macOS has no SOCK_CLOEXEC for it.
// -1 and errno on failure.
inline int open_socket(int family, int type, int protocol) {
#ifdef SOCK_CLOEXEC
  return ::socket(family, type | SOCK_CLOEXEC, protocol);
#else
  const int socket = ::socket(family, type, protocol);
  if (socket >= 0) (void)::fcntl(socket, F_SETFD, FD_CLOEXEC);
  return socket;
#endif
}

}  // namespace quire
