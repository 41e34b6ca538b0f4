// SPDX-License-Identifier: GPL-2.0-or-later
// Http: cpp-httplib's server with bounds that it lacks: how many connections there are, how many
// bytes and how long a request may be. Heavy header.
#pragma once

// Debian has built the library with these, and its types depend on them.
#define CPPHTTPLIB_OPENSSL_SUPPORT
#define CPPHTTPLIB_ZLIB_SUPPORT
#define CPPHTTPLIB_BROTLI_SUPPORT
#include <httplib.h>

#include <atomic>

namespace souk::tools::web {

constexpr size_t connections_max = 96, watchers_max = 64;
constexpr size_t request_bytes_max = 16 * 1024;

class Http : public httplib::Server {
  public:
    Http();

  private:
    bool process_and_close_socket(socket_t socket) override;
};

}  // namespace souk::tools::web
