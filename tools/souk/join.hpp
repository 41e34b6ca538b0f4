// SPDX-License-Identifier: GPL-2.0-or-later
// Gets a node its first certificate: with a join token (kernel/trust/token.hpp), from the market
// that the token names.
#pragma once

#include "kernel/trust/token.hpp"

namespace souk {

struct JoinPlan {
    trust::Token token;
    std::string name;      // that the node wants
    std::string market;    // HOST:PORT
    std::string identity;  // the directory that gets it
};
// The key is made here. The market proves that it is the token's before it hears the secret.
// Returns until when (Unix time) the nodes of that market talk without certificates; 0: they do
// not.
Result<Nanos> join(const JoinPlan& plan);
// The time that the market with that root has, in Unix time; it is asked as one who may join.
Result<Nanos> market_time(const std::string& market, const std::string& root_digest);

}  // namespace souk
