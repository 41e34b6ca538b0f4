// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/identities.hpp"

#include <unistd.h>

#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/installation.hpp"
#include "kernel/trust/ticket_key.hpp"

namespace souk {
namespace {

// Says from when on certificates are good, and how long those of daemons are.
struct Times {
    Nanos root, issuing, leaf, leaf_life;
};

Times of_a_market() { return {unix_now(), unix_now(), unix_now(), trust::leaf_life}; }

// All daemons of `souk up` have one clock: no other machine's is compared with it, and it may be
// set by weeks while they run. After three months of running they renew as others do.
Times of_one_host() {
    constexpr Nanos year = Nanos::from_s(31'536'000);
    const Nanos now = unix_now();
    return {now - year - year - year, now - year - year, now - year, Nanos{year.ns / 2 * 5}};
}

// The certificate of what lives in `dir`, which holds or gets its key.
Status certify(const std::string& dir, const trust::Subject& subject,
               const trust::Authority& issuing, const trust::Certificate& root,
               const Times& times) {
    TRY(trust::make_private_dir(dir));
    TRY_ASSIGN(const trust::Key key, trust::key_of(dir));
    TRY_ASSIGN(const auto own, trust::issue(issuing, key, subject, times.leaf, times.leaf_life));
    return trust::save_identity(dir, {key, {own, issuing.certificate}, root, {}});
}

Result<trust::Authority> make_authority(const std::string& dir, const std::string& name,
                                        const Times& times) {
    TRY(trust::make_private_dir(dir));
    TRY_ASSIGN(auto root, trust::make_root(name, times.root));
    TRY_ASSIGN(const auto issuing, trust::make_issuing(root, name, times.issuing));
    TRY(trust::save_issuing(dir, issuing));
    TRY(trust::TicketRing::open(dir, unix_now()));
    TRY(certify(dir, {"market", trust::only(trust::Role::market)}, issuing, root.certificate,
                times));
    return root;
}

}  // namespace

Result<trust::Authority> make_market_identity(const std::string& dir, const std::string& name) {
    return make_authority(dir, name, of_a_market());
}

Status make_node_identity(const std::string& dir, const std::string& node,
                          const std::string& market_dir) {
    TRY_ASSIGN(const auto market, trust::load_identity(market_dir));
    if (!market) return fail("there is no market in " + market_dir);
    TRY_ASSIGN(const auto issuing, trust::load_issuing(market_dir));
    return certify(dir, {node, trust::node_roles}, issuing, market->root, of_a_market());
}

Status make_identities(const Instance& instance) {
    const std::string market = instance.market.state + "/identity";
    const Times times = of_one_host();
    TRY_ASSIGN(auto there, trust::load_identity(market));
    if (!there) {
        // The root's key goes with this process: whoever loses the CA of one host makes a new one.
        TRY(make_authority(market, instance.tag, times));
        TRY_ASSIGN(there, trust::load_identity(market));
    }
    TRY_ASSIGN(const auto issuing, trust::load_issuing(market));
    const trust::Subject itself{"market", trust::only(trust::Role::market)};
    TRY(certify(market, itself, issuing, there->root, times));
    for (const Daemon& d : instance.nodes) {
        TRY(certify(d.state + "/identity", {d.name, trust::node_roles}, issuing, there->root,
                    times));
        (void)::unlink((beside_state(d.state) + kept_market).c_str());  // of a market before
    }
    return {};
}

}  // namespace souk
