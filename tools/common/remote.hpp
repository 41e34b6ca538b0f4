// SPDX-License-Identifier: GPL-2.0-or-later
// A question to a daemon on another host, as an operator or an owner: over TLS, with the key and
// the certificate that `souk operator add` has made. They lie in one directory, with the market's
// root and, in the file `market`, its address.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernel/trust/subject.hpp"
#include "tools/common/ask.hpp"

namespace souk::wire {
class Tls;
}

namespace souk::tools {

struct Remote {
    std::string market;  // HOST:PORT
    std::string dir;     // of the key and the certificate
};

// Follows --market and --cert (either may be empty), then $SOUK_MARKET and $SOUK_CERT, then
// ~/.config/souk/operator if that is there. Returns nothing if none of them names a market. Fails
// if half of it is missing, and says which.
Result<std::optional<Remote>> find_remote(const std::string& market, const std::string& cert);
// Tells whether the command line or the environment asks for another host.
bool is_remote_asked(const std::string& market, const std::string& cert);
// A program was told with these where its daemon is. An empty text was not said.
struct Where {
    std::string socket, node, market, cert;
};
// Returns the daemon of another host, if `where` or the environment says so, or if there is none
// here. Errors: as find_remote(), or `where` names this host and another one.
Result<std::optional<Remote>> remote_of(const Where& where, const std::function<bool()>& is_here);

// Reads the certificate as it lies there now, to prove oneself to that market.
Result<std::shared_ptr<wire::Tls>> tls_of(const Remote& remote);
// These ask the market, or the agentd of that node, whose address the market says; otherwise as
// ask().
Result<Answer> ask_market_at(const Remote& remote, const std::string& verb,
                             const std::vector<std::string>& args, Nanos patience);
// Asks the market for the part after `after`, as ask_part() does.
Result<ListPart> ask_market_part_at(const Remote& remote, const std::string& verb,
                                    const std::vector<std::string>& args, const std::string& after,
                                    Nanos limit);
Result<Answer> ask_node_at(const Remote& remote, const std::string& node, const std::string& verb,
                           const std::vector<std::string>& args, Nanos patience);

}  // namespace souk::tools
