// SPDX-License-Identifier: GPL-2.0-or-later
// BenchMarketCa: the certificates of a benchmark's market, where its connections are TLS: the
// market's own, in its directory, and those of as many agents as there are.
#pragma once

#include <memory>
#include <string>

#include "kernel/sys/host/clock.hpp"
#include "kernel/trust/identity.hpp"
#include "kernel/wire/tls.hpp"
#include "tests/bench/market_process.hpp"

namespace souk::bench {

class BenchMarketCa {
  public:
    BenchMarketCa()
        : root_(value(trust::make_root("bench", unix_now()))),
          issuing_(value(trust::make_issuing(root_, "bench", unix_now()))) {}

    void make_market(const std::string& directory) const {
        const auto done = [&]() -> Status {
            TRY(trust::make_private_dir(directory));
            TRY(trust::save_issuing(directory, issuing_));
            TRY_ASSIGN(const trust::Key key, trust::key_of(directory));
            return trust::save_identity(
                directory, identity(key, {"market", trust::only(trust::Role::market)}));
        }();
        if (!done) fatal(done.error().message);
    }
    std::unique_ptr<wire::Tls> agent(const std::string& name) const {
        return value(
            wire::Tls::open(identity(value(trust::Key::make()), {name, trust::node_roles}), {}));
    }

  private:
    trust::Identity identity(const trust::Key& key, const trust::Subject& subject) const {
        return {key,
                {value(trust::issue(issuing_, key, subject, unix_now())), issuing_.certificate},
                root_.certificate,
                {}};
    }
    trust::Authority root_, issuing_;
};

}  // namespace souk::bench
